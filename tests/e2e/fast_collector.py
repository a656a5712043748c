"""A collector process whose time goes by faster than ours.

`fast_collector.py FOLDER BEGAN_NS EVERY_NS SPEED SETTING...`; see `main`.
It ends well when its standard input ends, and shows it by its exit code.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from overwatch.collector import Service
from overwatch.fold import SLOW_NS
from tests.overwatch.collector.running import config

SPEED = 15
"""Seconds of its time in one of ours."""
EVERY_NS = 4 * SLOW_NS
"""Its time between two checkpoints, and two that it leaves."""


def its_time(began: int, speed: int = SPEED) -> int:
    """Unix nanoseconds; it was ours when that began."""
    return began + (time.time_ns() - began) * speed


def main(folder: Path, began: int, every: int, speed: int, sets: list[str]) -> int:
    """Until standard input ends; `every` is the time between two checkpoints, 0 for what is shipped."""
    with ExitStack() as patches:
        for module in ("overwatch.collector.checkpoints", "overwatch.recordings.checkpoints"):
            if every:
                patches.enter_context(mock.patch(f"{module}.EVERY_NS", every))
        service = Service(config(folder, *sets), lambda: its_time(began, speed))
        service.start()
        service.announce()
        sys.stdin.read()
        service.stop()
    return service.failed_stops


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
