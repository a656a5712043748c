"""The thread that looks whether token files and certificates changed.

Rules: it looks twice within the interval, as a change holds only when two looks agree; whatever goes wrong
with one look, there is a next one. Must not know what tokens and certificates are.
"""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("overwatch.collector")


class Rotation:
    """A component that calls `look` until it is stopped."""

    def __init__(self, look: Callable[[], None], interval_s: float) -> None:
        self._look = look
        self._pause_s = interval_s / 2
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rotation", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it goes on looking."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._pause_s):
            try:
                self._look()
            except Exception:  # noqa: BLE001 the border: without a next look a revoked token would hold for ever
                _log.exception("token files and certificates could not be looked at")
