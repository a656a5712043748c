"""A simulated run on the wire: its events as OTLP requests, and their delivery to a collector.

Rules: one producer numbers the events, a tenth of a second a request. Requests keep their order, so each
waits for the one before it; what waits is bounded, and what did not fit, was refused or was left at the end
is counted by reason. A thread of its own delivers, so that a collector that is away does not hold up the
run's clock. Must not know what happens in the run.
"""

import os
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from overwatch import __version__
from overwatch.delivery import OtlpTransport, destination, sender
from overwatch.delivery.answer import Answer, Outgoing, Verdict
from overwatch.delivery.sender import Pace
from overwatch.events import ActionTaken, EpisodeEnded, Event, Measured, Origin, Record
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.encode import request
from overwatch.sdk.arguments import is_url
from overwatch.simulate.script import ALGO, TASK, Moment
from overwatch.snapshot import SIMULATOR

GROUP_NS: Final = 100_000_000
PACE: Final = Pace(token_s=0.0)
"""How fast a collector that is away is tried again."""
MOST_WAITING: Final = 256 << 20
"""Most bytes of requests that wait."""
MOST_READY: Final = 16 << 20
"""Bytes that wait, above which who can wait does."""
MAX_BYTES: Final = 2 << 20
"""Most bytes of columns in one request; a collector refuses bodies of more than 4 MiB."""

_NAMED_BYTES: Final = 24
"""Of a number beside its name."""


class Reported(Outgoing, frozen=True, kw_only=True):
    """One request."""

    at: int
    """When its last event happened, Unix nanoseconds."""
    records: int
    signal: Signal = Signal.LOGS
    note: object = None
    """What whoever sends it remembers with it; no part of the request."""


class Packer:
    """Numbers one producer's events and packs them."""

    def __init__(self, origin: Origin, service: str) -> None:
        self._origin = origin
        self._resource = {wire.SERVICE: service, "telemetry.distro.version": __version__}
        self._seq = 0

    def report(self, moments: Iterable[Moment], apart_ns: int = GROUP_NS) -> Iterator[Reported]:
        """Requests in order; what is within `apart_ns` goes together."""
        for _, together in groupby(moments, key=lambda moment: moment.at // apart_ns):
            yield from self._requests([event for moment in together for event in moment.events])

    def _requests(self, events: list[Event]) -> Iterator[Reported]:
        waiting: list[Event] = []
        size = 0
        for event in events:
            more = _bytes(event)
            if waiting and size + more > MAX_BYTES:
                yield self._request(waiting)
                waiting, size = [], 0
            waiting.append(event)
            size += more
        if waiting:
            yield self._request(waiting)

    def _request(self, events: list[Event]) -> Reported:
        first = self._seq + 1
        self._seq += len(events)
        records = [
            Record(origin=self._origin, event=event, seq=seq) for seq, event in enumerate(events, first)
        ]
        return Reported(at=events[-1].at, records=len(records), body=request(records, self._resource))


class Teller(Packer):
    """The producer of a scripted run."""

    def __init__(self, run_id: str, epoch: str) -> None:
        super().__init__(
            Origin(run_id=run_id, epoch=epoch, ours=True, task=TASK, algo=ALGO), service=SIMULATOR
        )


def _bytes(event: Event) -> int:
    """Bytes of an event's columns and of the names of what was measured; the rest is small."""
    names = 0
    if isinstance(event, Measured):
        columns = (*event.keys.values(), *event.values.values())
        names = sum(len(name) + _NAMED_BYTES for name in event.values)
    elif isinstance(event, EpisodeEnded):
        columns = (event.env_id, event.episode_return)
    elif isinstance(event, ActionTaken):
        columns = (event.env_id, event.op)
    else:
        return 0
    return names + sum(len(column.data) for column in columns)


class Sender:
    """Delivers requests in the order in which they are given."""

    def __init__(self, endpoint: str, pace: Pace = PACE, most: int = MOST_WAITING) -> None:
        """`most` bytes wait; raises `ValueError` for what is no address of OTLP/HTTP."""
        if not is_url(endpoint):
            raise ValueError(f"endpoint {endpoint!r} is no address; write it like http://127.0.0.1:4318")
        self.endpoint = endpoint
        self._most = most
        self._waiting: deque[Reported] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self.delivered = 0
        """Records that the collector took."""
        self.settled = 0
        """Requests that were taken or given up."""
        self.losses: Counter[str] = Counter()
        """Records that it did not get, by reason."""
        self.trouble: str | None = None
        """Why the newest try failed; `None` after one that did not."""
        # By HTTP, whatever protocol the environment names for trainers.
        env = {name: value for name, value in os.environ.items() if not name.endswith("_PROTOCOL")}
        to = destination(Signal.LOGS, endpoint, env)
        self._sender = sender.Sender(self, lambda: OtlpTransport({Signal.LOGS: to}), self, pace)

    def start(self) -> None:
        """Begin to deliver."""
        self._sender.start()

    def put(self, reported: Reported) -> None:
        """Queue one request; returns at once. One that does not fit is counted as lost."""
        with self._changed:
            if self._bytes + len(reported.body) > self._most:
                self.losses["too much was waiting"] += reported.records
                return
            self._waiting.append(reported)
            self._bytes += len(reported.body)
            self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        """Whether so little waits that who can wait need not."""
        return self._bytes < min(MOST_READY, self._most)

    def close(self) -> None:
        """Stop; what still waits is counted as lost."""
        self._sender.stop()
        for reported in self._waiting:
            self.losses["not delivered in time"] += reported.records
        self._waiting.clear()

    def take(self, timeout_s: float) -> Reported | None:
        """The oldest request, waiting so long for one."""
        with self._changed:
            return self._waiting[0] if self._changed.wait_for(lambda: self._waiting, timeout_s) else None

    def landed(self, request: Reported, rejected: int) -> None:
        """The collector has it, but for so many records."""
        self.delivered += request.records - rejected
        if rejected:
            self.losses["not kept by the collector"] += rejected
        self._settle()

    def lost(self, request: Reported, reason: str) -> None:
        """It is given up."""
        self.losses[reason.replace(f"{sender.REFUSED}_", f"{sender.REFUSED} with ")] += request.records
        self._settle()

    def _settle(self) -> None:
        with self._changed:
            self._bytes -= len(self._waiting.popleft().body)
            self.settled += 1
            self._changed.notify_all()

    def wait_empty(self, timeout_s: float) -> bool:
        """Whether nothing waits any more; waits up to `timeout_s` seconds for that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def note(self, answer: Answer) -> None:
        """Take the collector's answer to a try."""
        self.trouble = None if answer.verdict is Verdict.TAKEN else answer.detail

    def gives_up(self) -> str | None:
        """Never: a run is sent for as long as it lasts."""
        return None
