"""What of a program's main thread is Overwatch's: `python cost.py OUT SCRIPT` runs SCRIPT and writes OUT.

A sampler: after each millisecond of the process's CPU it looks at the main thread's stack and attributes the
thread time since it looked last (`time.thread_time_ns`; its own is left out). Imports count nowhere. A sample
is Overwatch's where the innermost frame that decides is one of its files; frames of the standard library, of
NumPy and of PyTorch do not decide, so that what Overwatch calls of them is its own, and the step of an env
below a wrapper is not. `once` is what starts and ends a run. Uses only the standard library.
"""

import json
import runpy
import signal
import sys
import time
from pathlib import Path
from types import FrameType

EVERY_S = 0.001
OURS = (f"{Path('src', 'overwatch')}/", f"{Path('src', 'overwatch_rl', 'telemetry')}/")
ONCE = ("sdk/launch.py", "sdk/lifetime.py")
UNDECIDED = ("<", f"{Path(json.__file__).parents[1]}/")
WORDS = f"{Path('src', 'overwatch', 'catalog')}/"
"""Decides nothing: a world of ours asks it for codes of stages, which is no telemetry."""
LIBRARIES = ("/site-packages/numpy/", "/site-packages/torch/", "/site-packages/msgspec/")
IMPORTS = "<frozen importlib._bootstrap>"


class Sampler:
    """Thread time in nanoseconds, by whose it is."""

    def __init__(self) -> None:
        self.spent = {"ours": 0, "once": 0, "theirs": 0, "imports": 0}
        self._kinds: dict[str, str] = {}
        self._last = time.thread_time_ns()

    def take(self, _: int, frame: FrameType | None) -> None:
        """Attribute what was spent since the last sample."""
        now = time.thread_time_ns()
        self.spent[self._whose(frame)] += now - self._last
        self.skip()

    def skip(self) -> None:
        """Attribute what was spent since the last sample to nobody."""
        self._last = time.thread_time_ns()

    def _whose(self, frame: FrameType | None) -> str:
        decided = ""
        while frame is not None:
            kind = self._kind(frame.f_code.co_filename)
            if kind == "imports":
                return kind
            if kind == "once" and decided == "ours":
                decided = "once"
            decided = decided or kind
            frame = frame.f_back
        return decided or "theirs"

    def _kind(self, file: str) -> str:
        found = self._kinds.get(file)
        if found is None:
            found = self._kinds[file] = _kind(file)
        return found


def _kind(file: str) -> str:
    if file == IMPORTS:
        return "imports"
    if WORDS in file:
        return ""
    if any(part in file for part in OURS):
        return "once" if file.endswith(ONCE) else "ours"
    if any(part in file for part in LIBRARIES):
        return ""
    return "" if file.startswith(UNDECIDED) and "site-packages" not in file else "theirs"


def main() -> None:
    """Run the program below the sampler."""
    out, script = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.argv, sys.path[0] = sys.argv[2:], str(Path(script).parent)
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.take)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write_text(json.dumps(sampler.spent))


if __name__ == "__main__":
    main()
