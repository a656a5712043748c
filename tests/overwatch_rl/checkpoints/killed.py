"""Run as a program: saves into a folder, killed at every fifth line of the writing; prints what it met."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from overwatch.objects import backends
from overwatch_rl.checkpoints import manifest, store
from overwatch_rl.checkpoints.reading import find_checkpoint
from tests.overwatch_rl.checkpoints.made import state, write

folder = Path(sys.argv[1])
# A kill is no power loss: the system keeps what it has.
vars(backends)["sync"] = vars(backends)["sync_folder"] = lambda _: None
TRACED = {module.__file__ for module in (store, manifest, backends)}


def killed_at(number: int, updates: int) -> bool:
    """Save in a child that kills itself before its line `number`; whether it came that far."""
    child = os.fork()
    if child == 0:
        left = 5 * number

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
        write(folder, state(updates, score=float(updates)), keep=2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


write(folder, state(1, score=1.0), keep=2)
newest, kills = 1, 0
while killed_at(kills, newest + 1):
    kills += 1
    found = find_checkpoint(folder)
    expected = (newest, newest + 1)
    assert found.state.updates in expected, (kills, found.state.updates, expected)
    newest = found.state.updates + 1
    write(folder, state(newest, score=float(newest)), keep=2)
print(kills, len(list(folder.glob("**/.*.partial"))))
