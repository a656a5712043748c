"""The trainer's stream: frames as they come, until the trainer says so, goes away or dies.

Rules: the pipe is emptied in bursts, so that writing to it rarely wakes this process. Must not know what
frames mean.
"""

import os
import select
import time
from collections.abc import Iterator
from typing import Final

from overwatch.sdk.frames import Close, Frame, FrameReader

_READ: Final = 1 << 20
_BURST: Final = 1 << 19
"""After this many bytes at once there is more to come: no pause."""
_PAUSE_S: Final = 0.01
_IDLE_MS: Final = 500


class Intake:
    """Frames from a file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._parent = os.getppid()
        self._reader = FrameReader()

    @property
    def malformed(self) -> int:
        """Frames that were none."""
        return self._reader.malformed

    def frames(self) -> Iterator[tuple[Frame, int] | None]:
        """Each frame with its size, `None` when a while has passed; ends with the stream.

        Raises `FrameError` when the stream is broken.
        """
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            ready = poll.poll(_IDLE_MS)
            if not ready and os.getppid() != self._parent:
                return
            data = os.read(self._fd, _READ) if ready else None
            if data == b"":
                return
            for frame, size in self._reader.feed(data or b""):
                yield frame, size
                if isinstance(frame, Close):
                    return
            yield None
            if data and len(data) < _BURST:
                time.sleep(_PAUSE_S)
