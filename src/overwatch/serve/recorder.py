"""Snapshots as a file: one line of JSON for each snapshot that a frame marks as recorded.

Rules: lines are in the order of the frames, written by one thread of its own, on disk within a second of
their frame and at close. A disk that fails loses lines and reports how many; it never stops the aggregator.
Must not know how snapshots are made, where the file's folder is chosen, or when files rotate.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from overwatch import codec
from overwatch.serve.snapshotfiles import SnapshotFiles
from overwatch.snapshot import Snapshot

if TYPE_CHECKING:
    from overwatch.aggregator import Frame

_log = logging.getLogger("overwatch.collector")

MOST_WAITING: Final = 4096
"""Most snapshots that wait for a disk which does not answer."""

FLUSH_S: Final = 1.0
"""Longest time between a frame and its lines on disk, in seconds."""


class Recorder:
    """A frame sink that writes `snapshots.jsonl`; `report` gets lines written, lost, and why."""

    def __init__(self, files: SnapshotFiles, report: Callable[[int, int, str | None], None]) -> None:
        self._file = files
        self._report = report
        self._waiting: queue.Queue[Snapshot | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether its thread goes on."""
        return self._thread.is_alive()

    def publish(self, frame: "Frame") -> None:
        """Queue what the frame marks as recorded; returns at once."""
        for snapshot in frame.recorded:
            try:
                self._waiting.put_nowait(snapshot)
            except queue.Full:
                self._report(0, 1, f"{self._file.path}: the disk did not answer for too long")

    def close(self) -> None:
        """Write all that waits, then let go of the file; a second call does nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        self._file.close()

    def _run(self) -> None:
        done = False
        while not done:
            batch, done = self._gather()
            if batch:
                self._write(batch)

    def _gather(self) -> tuple[list[Snapshot], bool]:
        """What comes within one flush interval of the first snapshot, and whether that is the end."""
        first = self._waiting.get()
        if first is None:
            return [], True
        batch = [first]
        until = time.monotonic() + FLUSH_S
        while (left := until - time.monotonic()) > 0:
            try:
                snapshot = self._waiting.get(timeout=left)
            except queue.Empty:
                break
            if snapshot is None:
                return batch, True
            batch.append(snapshot)
        return batch, False

    def _write(self, batch: list[Snapshot]) -> None:
        """The border to the disk, and of the thread: what cannot be written is lost, and reported."""
        try:
            self._file.append(b"".join(codec.encode(snapshot) + b"\n" for snapshot in batch))
        except OSError as error:
            self._report(0, len(batch), f"{self._file.path}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 as above
            _log.error("%d snapshots cannot be written", len(batch), exc_info=error)
            self._report(0, len(batch), f"an error of ours: {type(error).__name__}: {error}")
        else:
            self._report(len(batch), 0, self._tidied())

    def _tidied(self) -> str | None:
        """Pack and thin what is due; returns why that cannot be done. No line is lost by it."""
        try:
            self._file.tidy()
        except OSError as error:
            return f"{error.filename or self._file.path}: {error.strerror or error}"
        return None
