"""The exporter as a thread of the trainer, where no process can be started or no file can be shared.

Rules: the same work as the process does, at the price of the interpreter lock; it ends with the trainer.
Must not know how the rings are written.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from overwatch.sdk.exporter.core import Exporter, ShutdownSignal, open_spool
from overwatch.sdk.frames import Hello, Progress
from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.source import RingSource

log: Final = logging.getLogger("overwatch.exporter")


class _Told(ShutdownSignal):
    """The shutdown as the trainer asks for it."""

    def __init__(self) -> None:
        self._said = threading.Event()
        self._deadline = 0.0

    def say(self, deadline: float) -> None:
        """Be done by `deadline`."""
        self._deadline = deadline
        self._said.set()

    def wait(self, timeout_s: float) -> float | None:
        """Wait so long; the deadline, once it was said."""
        return self._deadline if self._said.wait(timeout_s) else None


class ExporterThread:
    """One life of the exporter of some rings."""

    pid = None

    def __init__(self, hello: Hello, rings: RingSet, tell: Callable[[Progress], None]) -> None:
        self._hello, self._rings, self._tell = hello, rings, tell
        self._shutdown = _Told()
        self._thread = threading.Thread(target=self._run, name="overwatch-exporter", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._thread.is_alive()

    def watch(self) -> None:
        """Wait for its end, however long that takes."""
        self._thread.join()

    def say_close(self, deadline: float, *, at_exit: bool) -> None:  # noqa: ARG002 it ends with the process
        """Ask it to deliver what there is until `deadline` (monotonic seconds) and end."""
        self._shutdown.say(deadline)

    def finish(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came in time. What does not end, ends with the trainer."""
        self._thread.join(max(timeout_s, 0.0))
        return not self._thread.is_alive()

    def release(self) -> None:
        """Let go of it."""
        self._shutdown.say(time.monotonic())

    def abandon(self) -> None:
        """In a forked child there is no such thread."""

    def _run(self) -> None:
        try:
            self._work()
        except Exception:
            log.exception("the telemetry thread ended")
            raise

    def _work(self) -> None:
        source = RingSource(self._rings)
        spool = open_spool(self._hello, self._rings.path)
        try:
            Exporter(self._hello, source, spool, self._tell).run(self._shutdown)
        finally:
            spool.close()
            source.close()
