"""A collector process whose time goes by faster than ours: `fast_collector.py FOLDER BEGAN_NS SETTING...`.

It ends well when its standard input ends, and says so by its exit code.
"""

import sys
import time
from pathlib import Path
from unittest import mock

from overwatch.collector import Service
from overwatch.fold import SLOW_NS
from tests.overwatch.collector.running import config

SPEED = 15
"""Seconds of its time in one of ours."""
EVERY_NS = 4 * SLOW_NS
"""Its time between two checkpoints, and two that it leaves."""


def its_time(began: int) -> int:
    """Unix nanoseconds; it was ours when that began."""
    return began + (time.time_ns() - began) * SPEED


def main(folder: Path, began: int, sets: list[str]) -> int:
    """Until standard input ends."""
    with (
        mock.patch("overwatch.collector.checkpoints.EVERY_NS", EVERY_NS),
        mock.patch("overwatch.recordings.checkpoints.EVERY_NS", EVERY_NS),
    ):
        service = Service(config(folder, *sets), lambda: its_time(began))
        service.start()
        service.announce()
        sys.stdin.read()
        service.stop()
    return service.failed_stops


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
