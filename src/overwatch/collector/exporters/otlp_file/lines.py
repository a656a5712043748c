"""Bodies as lines of OTLP/JSON, under load by a process of its own: whoever waits for an answer comes first.

Rules: the line is the same whoever made it. Where much waits already it is made here: the process has a lower
priority, and may not get its turn. Must not know what becomes of lines.
"""

import time
from collections.abc import Callable

from overwatch.collector.helper import Helper
from overwatch.journal import Signal
from overwatch.otlp.__main__ import Asked
from overwatch.otlp.jsonl import to_json


class Lines:
    """Used from one thread. `stop` it."""

    def __init__(self, late: Callable[[], bool] = lambda: False, helper: Helper | None = None) -> None:
        """`late` says whether too much waits for lines."""
        self._late = late
        self._helper = helper or Helper("writes OTLP/JSON")
        self._is_late = False
        """Too much waits, looked at once a second."""
        self._look_at = 0.0

    def to_json(self, signal: Signal, body: bytes) -> bytes:
        """As `jsonl.to_json`."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at, self._is_late = now + 1.0, self._late()
        line = None if self._is_late else self._helper.ask(Asked.LINE, signal, body)
        return to_json(signal, body) if line is None else line

    def stop(self) -> None:
        """End the process, if there is one."""
        self._helper.stop()
