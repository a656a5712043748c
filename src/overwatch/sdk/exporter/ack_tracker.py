"""Which records of the trainer's rings are settled: delivered, or given up and counted.

Stands between spool and sender and sees every request go; requests go in order. Safe from any thread. Must
not know what a request holds.
"""

import threading
from collections import deque
from collections.abc import Mapping

from overwatch.delivery.sender import Source
from overwatch.sdk.exporter.request import Request


class AckTracker:
    """A source that keeps book of ring positions."""

    def __init__(self, source: Source[Request], settled: Mapping[str, int]) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._open: deque[tuple[int, Mapping[str, int]]] = deque()
        self._settled = dict(settled)

    def put(self, order: int, rings: Mapping[str, int]) -> None:
        """Request `order` brings the rings to these positions."""
        with self._lock:
            self._open.append((order, rings))

    def take(self, timeout_s: float) -> Request | None:
        """The oldest request; when none waits, everything put is settled."""
        with self._lock:
            newest = self._open[-1][0] if self._open else 0
        request = self._source.take(timeout_s)
        self._settle(newest if request is None and self._source.wait_empty(0.0) else 0)
        return request

    def landed(self, request: Request, rejected: int) -> None:
        """The collector has it."""
        self._source.landed(request, rejected)
        self._settle(request.order)

    def lost(self, request: Request, reason: str) -> None:
        """It is given up."""
        self._source.lost(request, reason)
        self._settle(request.order)

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until every request has landed or is lost."""
        return self._source.wait_empty(timeout_s)

    def settled(self) -> dict[str, int]:
        """By ring, the record up to which everything is settled."""
        with self._lock:
            return dict(self._settled)

    def _settle(self, order: int) -> None:
        with self._lock:
            while self._open and self._open[0][0] <= order:
                for ring, sequence in self._open.popleft()[1].items():
                    self._settled[ring] = max(self._settled.get(ring, 0), sequence)
