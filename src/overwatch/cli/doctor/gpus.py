"""GPUs: the driver, its library, its Python bindings, and whether this user may ask.

Rules: nothing is wrong with a machine that has no GPU; one that has some which cannot be read has a reason.
The sampler's own source is asked, in a process of its own, since a broken driver may hang it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.platform import PROC

AREA: Final = "gpu"
TIMEOUT_S: Final = 10.0
_DRIVER: Final = PROC / "driver/nvidia/version"
_CONTROL: Final = Path("/dev/nvidiactl")
_ASK: Final = """
import json, os, sys
from pathlib import Path
from overwatch.sdk.exporter.gpus import Local, with_files
source = Local(os.getpid(), with_files(*[Path(word) for word in sys.argv[1:]]))
gpus = source.open()
every = frozenset(gpu.uuid for gpu in gpus)
for look in source.questions(every):
    look.ask(every)
notes = source.unread.take()
print(json.dumps([[f"{gpu.model or 'GPU'} {gpu.uuid}" for gpu in gpus],
                  [[note.text, note.trouble] for note in notes]]))
sys.stdout.flush()
os._exit(0)
"""


def gpus(driver: Path = _DRIVER, control: Path = _CONTROL) -> Iterator[Verdict]:
    """What the sampler of a trainer would find."""
    if control.exists() and not os.access(control, os.R_OK | os.W_OK):
        yield failure(
            AREA,
            f"{control} may not be read and written by this user",
            "add the user to the device's group, or start the container with its GPUs",
        )
        return
    command = [sys.executable, "-c", _ASK, str(driver), str(control)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        yield failure(
            AREA,
            f"no driver's answer in {TIMEOUT_S:.0f} s",
            "look at dmesg for Xid errors; reset the GPU",
        )
        return
    if answer.returncode:
        why = (answer.stderr.strip().splitlines() or [f"status {answer.returncode}"])[-1]
        yield failure(AREA, f"a driver ends what asks it: {why}", "reinstall the driver; try nvidia-smi")
        return
    found, notes = json.loads(answer.stdout)
    yield from _verdicts(found, notes)


def _verdicts(found: list[str], notes: list[tuple[str, bool]]) -> Iterator[Verdict]:
    for name in found:
        yield ok(AREA, name)
    for text, trouble in notes:
        if not trouble:
            if not found:
                yield ok(AREA, f"{text}; GPU rows stay absent")
            continue
        found_so, _, fix = text.partition("; ")
        make = warning if found or "pip install" in fix else failure
        yield make(AREA, found_so, fix or "look whether nvidia-smi shows it")
    if not found and not notes:
        yield warning(
            AREA, "the driver has no GPU", "set CUDA_VISIBLE_DEVICES, or give the container its GPUs"
        )
