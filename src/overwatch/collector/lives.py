"""How earlier lives of a collector ended: those that were killed soon after their start are counted.

Rules: a life that lasts, or ends by itself, begins the count anew; a file that cannot be read or written
counts none. Must not know what is done with the count.
"""

import threading
from pathlib import Path
from typing import Final

import msgspec

from overwatch.recordings.checkpoints import write_whole

LASTS_S: Final = 60.0
"""A life of so many seconds was not killed by what its start needed."""
_NAME: Final = "lives"


class _Killed(msgspec.Struct, frozen=True):
    """The content of the file, as JSON."""

    killed: int
    """Lives in a row that did not last, this one among them until it does."""


_read: Final = msgspec.json.Decoder(_Killed).decode


class Lives:
    """The lives in one data folder, which this one holds. `start` it, then `stop` it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self.killed = self._known()
        """Lives in a row before this one that were killed soon after their start."""
        self._timer = threading.Timer(LASTS_S, self.stop)
        self._timer.daemon = True

    def start(self) -> None:
        """This life may be the next that is killed."""
        self._write(self.killed + 1)
        self._timer.start()

    def stop(self) -> None:
        """This life was not."""
        self._timer.cancel()
        self._write(0)

    def _known(self) -> int:
        try:
            return max(0, _read(self._path.read_bytes()).killed)
        except (OSError, msgspec.MsgspecError):
            return 0

    def _write(self, killed: int) -> None:
        try:
            write_whole(self._path, msgspec.json.encode(_Killed(killed)))
        except OSError:
            # A full disk is told by what needs it; without the file a start is as bold as the first.
            return
