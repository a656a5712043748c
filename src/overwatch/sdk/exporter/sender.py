"""The one thread that talks to the collector with log records.

Rules: batches go in order, one at a time; a collector that is away is tried again with growing pauses for
as long as the process lives; a batch that it refuses is counted and passed over; a change of fortune is
said once. Must not know events.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from overwatch.sdk.exporter.outlet import Answer, Outlet, Verdict
from overwatch.sdk.exporter.queue import SendQueue, Waiting

log: Final = logging.getLogger("overwatch.exporter")

LINGER_S: Final = 0.1
"""How long a batch waits for company: ten requests a second at most."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_DRAIN_PAUSE_S: Final = 0.05
_IDLE_S: Final = 0.5


class Sender:
    """Takes from the queue, gives to the collector."""

    def __init__(self, queue: SendQueue, open_outlet: Callable[[], Outlet], shown: str) -> None:
        self._queue = queue
        self._open = open_outlet
        self._shown = shown
        self._outlet = open_outlet()
        self._draining = threading.Event()
        self._is_up: bool | None = None
        self._progress: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="overwatch-sender", daemon=True)

    def start(self, progress: Callable[[], None]) -> None:
        """Begin; `progress` is called after each batch."""
        self._progress = progress
        self._thread.start()

    def drain(self, timeout_s: float) -> bool:
        """Send what waits without pauses; whether everything was sent or refused in time."""
        self._draining.set()
        self._queue.close()
        if self._outlet.struggling:
            self._outlet.close()
        return self._queue.wait_empty(timeout_s)

    def _run(self) -> None:
        while not self._queue.is_over:
            batch = self._queue.take(_IDLE_S)
            if batch:
                self._deliver(batch)
                self._progress()
                self._draining.wait(LINGER_S)

    def _deliver(self, batch: Sequence[Waiting]) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            answer = self._outlet.send([item.record for item in batch])
            match answer.verdict:
                case Verdict.TAKEN:
                    self._note(answer, is_up=True)
                    self._queue.landed(batch, answer.rejected)
                    return
                case Verdict.REFUSED:
                    self._note(answer, is_up=False)
                    self._queue.lost(batch, "refused")
                    return
                case Verdict.AGAIN:
                    self._note(answer, is_up=False)
                    self._pause(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE_S)
                case _:
                    assert_never(answer.verdict)

    def _pause(self, pause_s: float) -> None:
        if not self._draining.wait(pause_s * random.uniform(0.8, 1.2)):  # noqa: S311 jitter, not a secret
            return
        time.sleep(_DRAIN_PAUSE_S)
        self._outlet.close()
        self._outlet = self._open()

    def _note(self, answer: Answer, *, is_up: bool) -> None:
        if is_up is not self._is_up:
            if not is_up:
                log.warning("the collector at %s does not take telemetry (%s)", self._shown, answer.detail)
            elif self._is_up is not None:
                log.warning("the collector at %s takes telemetry again", self._shown)
            self._is_up = is_up
        if answer.rejected:
            log.warning("the collector did not keep %d records: %s", answer.rejected, answer.detail)
