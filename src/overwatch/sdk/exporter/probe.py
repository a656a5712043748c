"""A question asked in a thread of its own, so that an answer that never comes holds up nobody.

Rules: at most one question is under way; an answer is taken once, and none is lost: the next question waits
until it is taken. Must not know what is asked.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

log: Final = logging.getLogger("overwatch.exporter")

T_co = TypeVar("T_co", covariant=True)


class Probe(Generic[T_co]):
    """Asks in the background; the thread begins with the first question."""

    def __init__(self, name: str, question: Callable[[], T_co], bell: threading.Condition) -> None:
        """`bell` is rung at every answer, and guards what the probe knows."""
        self._name = name
        self._question = question
        self._bell = bell
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._answer: tuple[int, T_co] | None = None
        self.busy = False
        """A question is under way."""
        self.failed = 0
        """Questions that broke."""

    def ask(self) -> bool:
        """Begin to ask; `False` while the last question has no answer yet, or one that nobody took."""
        with self._bell:
            if self.busy or self._answer is not None or self._stopped:
                return False
            self.busy = True
        if self._thread is None:
            run = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=run, args=(self._run,), name=f"overwatch-{self._name}", daemon=True
            )
            self._thread.start()
        self._wanted.release()
        return True

    def take(self) -> tuple[int, T_co] | None:
        """The answer and its Unix time in nanoseconds; `None` where there is no new one."""
        with self._bell:
            answer, self._answer = self._answer, None
            return answer

    def stop(self) -> None:
        """End the thread, as soon as its question comes back."""
        self._stopped = True
        self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stopped:
                return
            answer = self._try()
            with self._bell:
                self._answer, self.busy = answer, False
                self._bell.notify_all()

    def _try(self) -> tuple[int, T_co] | None:
        try:
            answer = self._question()
        except Exception as error:  # noqa: BLE001 the border: counted, said once, and asked again
            self.failed += 1
            if self.failed == 1:
                log.warning("%s cannot be read: %s: %s", self._name, type(error).__name__, error)
            return None
        return time.time_ns(), answer
