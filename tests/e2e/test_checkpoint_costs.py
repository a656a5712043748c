"""What a start from a checkpoint costs: the memory of the fold, and not that of it as bytes too."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from overwatch.aggregator import Checkpoint
from overwatch.collector.checkpoints import Checkpoints
from overwatch.collector.health import Health
from overwatch.events import Origin, Record
from overwatch.fold import FAST_NS, Fold
from overwatch.journal import Batch, Folder, Signal
from overwatch.otlp.encode import request
from tests import fakes
from tests.fakes import START_NS

RUNS = 16
ENVS = 1000
CHILD = """
import json, sys
from pathlib import Path
from overwatch.collector.checkpoints import Checkpoints
from overwatch.collector.health import Health
from overwatch.collector.limits import Resident
from overwatch.journal import Folder
from overwatch.platform import return_memory_soon

def peak():
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) << 10

return_memory_soon()
checkpoints = Checkpoints(Folder(Path(sys.argv[1])), Health())
before = Resident()()
found = checkpoints.load()
loaded, at_load = Resident()() - before, peak() - before
found[0].fold.dump()
print(json.dumps([loaded, at_load, peak() - before]))
"""
"""Loads a checkpoint, and dumps its fold again: resident bytes of it, most at the load, and most of all."""


def filled() -> Fold:
    """A fold of some runs with many envs."""
    fold = Fold()
    for number in range(RUNS):
        tick = START_NS + number * FAST_NS
        origin = Origin(run_id=f"run-{number}", epoch="1", ours=True)
        ids = list(range(ENVS))
        events = [
            fakes.started(tick, n_envs=ENVS),
            fakes.envs(tick, ids, 1, reward=[float(n) for n in ids], step_time=[0.1 + n for n in ids]),
        ]
        body = request([Record(origin=origin, event=e, seq=1 + i) for i, e in enumerate(events)], {})
        batch = Batch(sequence=1 + number, stamp=tick - 9, signal=Signal.LOGS, body=body)
        fold.advance(tick, [batch], ())
    return fold


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_start_and_a_dump_hold_no_second_copy_of_the_fold(tmp_path: Path) -> None:
    """What is needed beside the fold is a small part of it: one run, and the packed bytes."""
    folder = Folder(tmp_path)
    checkpoints = Checkpoints(folder, Health())
    checkpoints.start()
    fold = filled()
    for position in (5, 9):
        packed = Checkpoint(tick=position, position=position, batches=1, ticks=1, fold=fold.dump())
        checkpoints._write(packed)
    checkpoints.stop()
    folder.close()
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    loaded, at_load, at_all = msgspec.json.decode(answer, type=tuple[int, int, int])

    assert loaded > 16 << 20
    assert at_load < 1.3 * loaded
    assert at_all < 1.3 * loaded
