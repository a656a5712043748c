"""How full the disk is that a run writes to: of its newest checkpoint, else of the folder it works in.

Rules: a folder that is not on this machine's disks (an address) changes nothing; a disk may hang, so it is
asked by a thread of its own. Must not know how readings are sent.
"""

from pathlib import Path

import psutil

from overwatch.catalog.machine import DISK_TOTAL, DISK_USED
from overwatch.platform import working_folder


class Disk:
    """The disk of one run of the process `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder: Path | None = None

    def saved(self, path: str) -> None:
        """The run saved a checkpoint here."""
        if "://" not in path and path:
            self._folder = Path(path).parent

    def read(self) -> dict[str, float]:
        """Values by catalogue name: what this user may have of the disk, and what is used of that."""
        folder = working_folder(self._pid)
        if self._folder is not None:
            folder = folder / self._folder
        there = next(place for place in (folder, *folder.parents) if place.exists())
        usage = psutil.disk_usage(str(there))
        return {DISK_USED.name: float(usage.used), DISK_TOTAL.name: float(usage.used + usage.free)}
