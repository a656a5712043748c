"""GPUs: the driver, NVIDIA's library, its Python bindings, and whether this user may ask.

Rules: nothing is wrong with a machine that has no GPU. NVML is asked in a process of its own, since a broken
driver may hang it.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning

AREA: Final = "gpu"
TIMEOUT_S: Final = 10.0
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_CONTROL: Final = Path("/dev/nvidiactl")
_ASK: Final = """
import pynvml as n
n.nvmlInit()
version = n.nvmlSystemGetDriverVersion()
for index in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(index)
    print(n.nvmlDeviceGetName(handle), n.nvmlDeviceGetUUID(handle), "driver", version)
"""


def gpus(driver: Path = _DRIVER, control: Path = _CONTROL) -> Iterator[Verdict]:
    """What the sampler of a trainer would find."""
    if not driver.exists() and not control.exists():
        yield ok(AREA, "no NVIDIA driver is loaded; GPU rows stay absent")
        return
    if control.exists() and not os.access(control, os.R_OK | os.W_OK):
        yield failure(
            AREA,
            f"{control} may not be read and written by this user",
            "add the user to the device's group, or start the container with its GPUs",
        )
        return
    if importlib.util.find_spec("pynvml") is None:
        yield warning(AREA, "there is a driver, but no nvidia-ml-py", "pip install 'esper-overwatch[gpu]'")
        return
    yield from _asked()


def _asked() -> Iterator[Verdict]:
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield failure(
            AREA, f"NVML did not answer in {TIMEOUT_S:.0f} s", "look at dmesg for Xid errors; reset the GPU"
        )
        return
    lines = answer.stdout.splitlines()
    if answer.returncode:
        why = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield failure(
            AREA, f"NVML refuses: {why}", "reinstall the driver or restart the machine; try nvidia-smi"
        )
    elif not lines:
        yield warning(
            AREA, "the driver has no GPU", "set CUDA_VISIBLE_DEVICES, or give the container its GPUs"
        )
    for line in lines if not answer.returncode else ():
        yield ok(AREA, line)
