"""A simulated run as OTLP requests: events numbered by one producer, a tenth of a second a request.

Must not know how requests travel.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.events import ActionTaken, EpisodeEnded, Event, Measured, Origin, Record
from overwatch.otlp import wire
from overwatch.otlp.encode import request
from overwatch.simulate.script import ALGO, TASK, Moment
from overwatch.snapshot import SIMULATOR

GROUP_NS: Final = 100_000_000
MAX_BYTES: Final = 2 << 20
"""Most bytes of columns in one request; a collector refuses bodies of more than 4 MiB."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    at: int
    """When its last event happened, Unix nanoseconds."""
    records: int
    body: bytes
    """An ExportLogsServiceRequest."""


class Teller:
    """Numbers one producer's events and packs them."""

    def __init__(self, run_id: str, epoch: str) -> None:
        self._origin = Origin(run_id=run_id, epoch=epoch, ours=True, task=TASK, algo=ALGO)
        self._resource = {wire.SERVICE: SIMULATOR, "telemetry.distro.version": __version__}
        self._seq = 0

    def tell(self, moments: Iterable[Moment]) -> Iterator[Told]:
        """Requests in order."""
        for _, together in groupby(moments, key=lambda moment: moment.at // GROUP_NS):
            yield from self._requests([event for moment in together for event in moment.events])

    def _requests(self, events: list[Event]) -> Iterator[Told]:
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

    def _request(self, events: list[Event]) -> Told:
        first = self._seq + 1
        self._seq += len(events)
        records = [
            Record(origin=self._origin, event=event, seq=seq) for seq, event in enumerate(events, first)
        ]
        return Told(at=events[-1].at, records=len(records), body=request(records, self._resource))


def _bytes(event: Event) -> int:
    """Bytes of an event's columns; the rest is small."""
    if isinstance(event, Measured):
        columns = (*event.keys.values(), *event.values.values())
    elif isinstance(event, EpisodeEnded):
        columns = (event.env_id, event.episode_return)
    elif isinstance(event, ActionTaken):
        columns = (event.env_id, event.op)
    else:
        return 0
    return sum(len(column.data) for column in columns)
