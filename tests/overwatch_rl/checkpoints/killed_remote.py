"""Run as a program: saves into an object store, killed at lines of the saving in turn; prints what it met.

`python killed_remote.py URL STRIDE`: every STRIDE-th line. Children alone speak to the store: its threads do
not survive a fork.
"""

import os
import signal
import sys
from array import array
from functools import partial
from types import FrameType
from typing import Any

from overwatch.objects import backends, retrying
from overwatch.objects import store as stores
from overwatch.objects.retrying import Patience
from overwatch.objects.store import open_store
from overwatch_rl.checkpoints import store as places
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import claim
from tests.overwatch_rl.checkpoints.made import FILES, state, upload

url, stride = sys.argv[1], int(sys.argv[2])
PATIENCE = Patience(deadline_s=30.0, request_s=5.0, first_s=0.01, most_s=0.05)
TRACED = {module.__file__ for module in (places, stores, backends, retrying)}


def in_child(work: Any) -> int:
    """Do it in a process of its own; its exit status."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save(updates: int) -> None:
    """One checkpoint, the two newest and the best kept."""
    upload(open_store(url, PATIENCE), state(updates, score=float(updates % 5)), keep=2)


def killed_at(line: int, updates: int) -> None:
    """Save, and be killed before a line of it."""
    left = line

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(count)
    save(updates)


def verify(newest: int) -> None:
    """What a reader finds: whole, and the newest or the one that was being saved. Exits with 10 + which."""
    found = find_checkpoint(url, patience=PATIENCE)
    assert found.state.updates in (newest, newest + 1), (found.state.updates, newest)
    last = array("f", (found.path / FILES[0]).read_bytes()[-256:])  # Without torch, which takes a second.
    assert last.tolist() == [float(found.state.updates)] * 64
    os._exit(10 + found.state.updates - newest)


assert in_child(lambda: claim(open_store(url, PATIENCE))) == 0
assert in_child(partial(save, 1)) == 0
newest, kills, line, found = 1, 0, 0, [0, 0]
while in_child(partial(killed_at, line, newest + 1)) == -signal.SIGKILL:
    kills, line = kills + 1, line + stride
    which = in_child(partial(verify, newest)) - 10
    assert which in (0, 1), which
    found[which] += 1
    newest += which + 1
    assert in_child(partial(save, newest)) == 0  # Which also removes what was left over.
newest += 1
assert in_child(partial(verify, newest)) == 10
print(kills, *found)
