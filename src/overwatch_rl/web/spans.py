"""Spans of the rollouts API: which are made, and how many.

Rules: who begins a trace decides whether it is recorded; each process makes a bounded number of spans a
second, however many groups it handles. Must not know what is measured.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from overwatch.sdk import Run
from overwatch.sdk.tracing import Span, parsed

HEADER: Final = "traceparent"
"""Of W3C Trace Context: the span that a request belongs to."""
GROUPS_A_SECOND: Final = 1.0
"""Traces that a handler begins."""
SERVED_A_SECOND: Final = 20.0
"""Spans of a server."""
CONSUMED_A_SECOND: Final = 20.0
"""Spans of a trainer."""
BURST_S: Final = 5.0
"""What was not used is kept for so long."""


class Spans:
    """Those of one process; none without a run."""

    def __init__(
        self, run: Run | None, per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._per_second = per_second
        self._clock = clock
        self._most = max(1.0, per_second * BURST_S)
        self._left = self._most
        self._at = clock()

    @contextmanager
    def root(self, name: str, traceparent: str | None = None) -> Iterator[Span | None]:
        """Begin a trace, or go on with one, where there may be one more span; else nothing is measured."""
        if self._run is None or not self._may():
            yield None
            return
        with self._run.span(name, traceparent) as span:
            yield span
        self._left += span.is_void

    def within(self, traceparent: str | None, name: str) -> AbstractContextManager[Span | None]:
        """A span below the one of a header, where that is recorded and there may be one more."""
        return self.root(name, traceparent) if parsed(traceparent) else nullcontext()

    @contextmanager
    def part(self, of: Span | None, name: str) -> Iterator[Span | None]:
        """A span below another of this process, wherever there is that one."""
        if self._run is None or of is None:
            yield None
            return
        with self._run.span(name, of.traceparent) as span:
            yield span

    def _may(self) -> bool:
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def named(span: Span | None, given: str | None) -> str | None:
    """What further spans go below or link to: this one, else the one that was given, where it is recorded."""
    if span is not None:
        return span.traceparent
    found = parsed(given)
    return None if found is None else found.traceparent
