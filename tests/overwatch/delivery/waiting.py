"""A source in memory that keeps an account, and senders that end with their test."""

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Iterator

from overwatch.delivery import OtlpTransport, destination
from overwatch.delivery.sender import DeliveryLog, Pace, Sender, Source
from overwatch.journal import Signal
from overwatch.sdk.exporter.queues import Request

DEADLINE_S = 20.0
SIGNALS = (Signal.LOGS, Signal.METRICS, Signal.TRACES)


def request(order: int, body: bytes | None = None, signal: Signal = Signal.LOGS) -> Request:
    """A request that holds one record and is known by its body."""
    return Request(
        order=order,
        signal=signal,
        body=b"%d" % order if body is None else body,
        is_fact=False,
        records=1,
        last_seq=order,
    )


class Waiting:
    """What waits, what landed, what is lost: one account."""

    def __init__(self, requests: int = 0) -> None:
        self.accepted = 0
        self.delivered: list[int] = []
        self.rejected = 0
        self.dropped: Counter[str] = Counter()
        self._waiting: deque[Request] = deque()
        self._flying: Request | None = None
        self._changed = threading.Condition()
        for order in range(1, requests + 1):
            self.put(request(order))

    def put(self, waiting: Request) -> None:
        """One more."""
        with self._changed:
            self.accepted += 1
            self._waiting.append(waiting)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Request | None:
        """The oldest."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, timeout_s):
                return None
            assert self._flying is None, "one at a time"
            self._flying = self._waiting.popleft()
            return self._flying

    def landed(self, request: Request, rejected: int) -> None:
        """The collector has it."""
        with self._changed:
            self._settle(request)
            self.delivered.append(request.order)
            self.rejected += rejected

    def lost(self, request: Request, reason: str) -> None:
        """It is given up."""
        with self._changed:
            self._settle(request)
            self.dropped[reason] += 1

    def wait_empty(self, timeout_s: float) -> bool:
        """Whether all is settled in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.pending, timeout_s)

    @property
    def pending(self) -> int:
        """What waits or is in flight."""
        return len(self._waiting) + (self._flying is not None)

    @property
    def adds_up(self) -> bool:
        """Accepted = delivered + dropped + pending."""
        return self.accepted == len(self.delivered) + sum(self.dropped.values()) + self.pending

    def _settle(self, request: Request) -> None:
        assert self._flying is request
        self._flying = None
        self._changed.notify_all()


@contextlib.contextmanager
def sending(
    source: Source[Request], endpoint: str | None, env: dict[str, str] | None = None, pace: Pace | None = None
) -> Iterator[Sender[Request]]:
    """A sender of all signals to an endpoint, already started."""
    words = env or {}
    to = {signal: destination(signal, endpoint, words) for signal in SIGNALS}
    sender = Sender(source, lambda: OtlpTransport(to), DeliveryLog(endpoint or "somewhere"), pace)
    sender.start()
    try:
        yield sender
    finally:
        assert sender.stop(5.0)
        assert not isinstance(source, Waiting) or source.adds_up
