"""One rank of a training below a sampler: `growing_rank.py FOLDER WORDS` runs `overwatch-rl WORDS`.

Writes `FOLDER/rank-RANK.json`: what of its main thread was telemetry's, as `tests/libraries/cost.py`
attributes it, in which functions, and the CPU of its other Python threads by name, in nanoseconds.
"""

import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.libraries.cost import EVERY_S, Sampler

LOOK_EVERY = 250
"""Samples between two looks at the other threads, which may end before the process does."""
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Threads(Sampler):
    """The sampler, and what other threads of Python took."""

    def __init__(self) -> None:
        super().__init__()
        self.others: dict[str, int] = {}
        self.places: Counter[str] = Counter()
        """Of telemetry's own time, by function."""
        self._looks = 0

    def take(self, number: int, frame: FrameType | None) -> None:
        """A sample; now and then a look."""
        before = self.spent["ours"]
        super().take(number, frame)
        if self.spent["ours"] > before:
            self.places[self._place(frame)] += self.spent["ours"] - before
        self._looks += 1
        if self._looks % LOOK_EVERY == 0:
            self.look()

    def _place(self, frame: FrameType | None) -> str:
        while frame is not None and self._kind(frame.f_code.co_filename) != "ours":
            frame = frame.f_back
        return "" if frame is None else f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"

    def look(self) -> None:
        """Note the CPU of each other thread that is there; what the look takes counts nowhere."""
        for thread in threading.enumerate():
            if thread.native_id is not None and thread is not threading.main_thread():
                self.others[thread.name] = _cpu_ns(thread.native_id)
        self.skip()


def _cpu_ns(native_id: int) -> int:
    try:
        fields = Path(f"/proc/self/task/{native_id}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) * TICK_NS


def main() -> None:
    """Train, sampled."""
    folder = Path(sys.argv[1])
    from overwatch_rl.cli import main as command

    sampler = Threads()
    signal.signal(signal.SIGPROF, sampler.take)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    try:
        command(sys.argv[2:], prog_name="overwatch-rl")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        found = {"main": sampler.spent, "others": sampler.others, "places": sampler.places.most_common(12)}
        (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
