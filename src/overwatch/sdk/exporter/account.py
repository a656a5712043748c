"""What became of the trainer's records, where the trainer can read it at any time.

It is a file that the trainer holds; the newest account lies at its beginning. Must not know the network.
"""

import contextlib
import os

import msgspec

from overwatch.sdk.exporter.disk_queue import LOST
from overwatch.sdk.frames import Progress, progress_of


class Account:
    """The account of one run in an open file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._length = os.fstat(self._fd).st_size
        self._before = Progress()

    def go_on(self) -> None:
        """Add to what the exporter before this one said: nothing else remembers it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            before = progress_of(os.pread(self._fd, self._length, 0))
            lost = Progress(dropped={LOST: before.at_risk} if before.at_risk else {})
            self._before = _added(before, lost)

    def write(self, progress: Progress) -> None:
        """Replace the account; padded, so that no rest of a longer one is read."""
        data = msgspec.json.encode(_added(self._before, progress))
        self._length = max(self._length, len(data))
        with contextlib.suppress(OSError):  # a disk without room: the trainer reads an older account
            os.pwrite(self._fd, data.ljust(self._length), 0)


def _added(before: Progress, since: Progress) -> Progress:
    dropped = {
        reason: before.dropped.get(reason, 0) + since.dropped.get(reason, 0)
        for reason in (*before.dropped, *since.dropped)
    }
    return msgspec.structs.replace(since, delivered=before.delivered + since.delivered, dropped=dropped)
