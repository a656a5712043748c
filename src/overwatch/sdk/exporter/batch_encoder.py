"""The exporter's middle: events come in, numbered log records leave for the spool a tenth of a second later.

Rules: every record gets the next number of this epoch, so a lost one leaves a gap that the tower sees; what
came out of a ring leaves in one request of its kind, so that a crash neither loses nor repeats it. Safe from
any thread. Must not know sockets or how rings are read.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import msgspec
from opentelemetry.sdk.resources import Resource

from overwatch.catalog import Scope
from overwatch.catalog.run import SDK_DROPPED
from overwatch.events import (
    CheckpointSaved,
    EpisodeEnded,
    Event,
    Measured,
    PhaseBegan,
    PhaseEnded,
    RunStarted,
    Severity,
    scalars,
)
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.encode import Pieces, as_bytes, encode, resource_logs
from overwatch.otlp.value import Value
from overwatch.sdk.conflate import Count
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.record_events import measured, non_finite
from overwatch.sdk.exporter.spool import Spool
from overwatch.sdk.exporter.window import Window
from overwatch.sdk.frames import Hello, SpanEnded, Update

log: Final = logging.getLogger("overwatch.exporter")

INVALID: Final = "invalid"
"""Why a record is gone that cannot be read or encoded."""
REPORT_S: Final = 1.0
"""How often a changed number of drops is emitted."""
FULL_BYTES: Final = 1 << 20
"""A window of this size is not added to."""
_PARTS: Final = 16
"""A request is at most about such a part of the room on disk: encoded it is larger than in the ring."""
_LEAST_BYTES: Final = 1024
_OWN_SIZE: Final = 512


class Ring(Enum):
    """Which ring a record came out of; the value names it in the spool."""

    NUMBERS = "numbers"
    FACTS = "facts"


class Place(NamedTuple):
    """Where a record of the trainer was."""

    ring: Ring
    sequence: int


@dataclass(slots=True)
class _Held:
    """What gathered of one ring since it was exported last."""

    records: list[bytes] = field(default_factory=list)
    """Log records."""
    counted: int = 0
    """Records of the trainer."""
    unsaid: int = 0
    """Those of them that could not be encoded."""
    spans: int = 0
    """Records besides that are spans."""


class BatchEncoder:
    """Encodes events. `stated` is the last number that was used before."""

    def __init__(
        self,
        resource: Resource,
        spool: Spool,
        instruments: Instruments,
        started: RunStarted,
        stated: int = 0,
    ) -> None:
        self._instruments = instruments
        self._spool = spool
        self._resource = resource
        self._lock = threading.Lock()
        self._window = Window(started.chosen, started.config)
        self._seq = stated
        self._rings: dict[Ring, int] = {}
        self._newest: int | None = None
        """Number of the newest update."""
        self._undrawn: Update | None = None
        """The newest update, where loops and third parties do not have it yet."""
        self._indices: list[int | None] = []
        """Numbers of the updates up to it that they do not have."""
        self._reported = 0
        self._reported_at = 0.0
        self._held = {ring: _Held() for ring in Ring}
        self._size = 0
        self._full_bytes = FULL_BYTES

    def take(self, event: Event, place: Place, *, size: int, counted: int, is_rolled: bool = False) -> None:
        """Take an event that the trainer emitted; it stands for `counted` records."""
        with self._lock:
            if not isinstance(event, Measured) or event.scope is Scope.POLICY:
                self._draw()
            if isinstance(event, PhaseEnded):
                event = self._instruments.loops.ended(event, follows=True)
            elif isinstance(event, PhaseBegan):
                self._instruments.loops.begins(event)
            elif isinstance(event, EpisodeEnded | CheckpointSaved):
                event = self._instruments.loops.placed(event)
            elif isinstance(event, Measured) and event.scope is Scope.POLICY:
                self._report(Count(event.updates(self._newest), None, event.index))
            self._window.add(event, size=size, counted=counted, is_rolled=is_rolled)
            self._note(event)
            self._rings[place.ring] = place.sequence

    def take_update(self, update: Update, place: Place, *, size: int) -> None:
        """Take an update that the trainer emitted, none of whose values needs a fact of its own."""
        with self._lock:
            self._window.add_update(update, size=size)
            self._undrawn = update
            self._indices.append(update.index)
            self._rings[place.ring] = place.sequence

    def take_span(self, span: SpanEnded, place: Place, *, size: int) -> None:
        """Hand a span that the process made itself to those who deliver spans."""
        with self._lock:
            self._size += size
            self._instruments.loops.add(span)
            self._held[place.ring].spans += 1
            self._rings[place.ring] = place.sequence

    def describe(self, started: RunStarted, run_id: str) -> None:
        """Emit the run as an entity; no event of the trainer's, so it has no number."""
        known = {wire.TASK: started.task, wire.ALGORITHM: started.algo, wire.GROUP: started.group}
        attributes: dict[str, Value] = {
            wire.ENTITY_TYPE: wire.RUN_ENTITY,
            wire.ENTITY_ID: {wire.RUN_ID: run_id},
            wire.ENTITY_DESCRIPTION: {name: word for name, word in known.items() if word is not None},
        }
        info = wire.SEVERITY_NUMBER[Severity.INFO]
        pieces = Pieces(event_name=wire.ENTITY_STATE, severity=info, attributes=attributes)
        with self._lock:
            self._held[Ring.FACTS].records.append(as_bytes(pieces, started.at))

    def _report(self, count: Count) -> None:
        """Report updates to the turns of the loop; those of the newest number are no more of them."""
        again = count.n > 0 and count.first is not None and count.first == self._newest
        self._instruments.loops.reported(count._replace(n=count.n - again))
        self._newest = count.last

    def skip(self, place: Place, *, counted: int, lost: int) -> None:
        """Pass over records that hold nothing; so many of them could not be exported."""
        with self._lock:
            held = self._held[place.ring]
            held.counted += counted
            held.unsaid += lost
            self._rings[place.ring] = place.sequence

    def emit(self, event: Event) -> None:
        """Take an event of the exporter's own."""
        with self._lock:
            self._window.add(event, size=_OWN_SIZE, counted=0)
            self._note(event)

    @property
    def stated(self) -> int:
        """The last number that was used."""
        return self._seq

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to export."""
        return not (self._rings or self._size or self._window.size_bytes)

    @property
    def is_full(self) -> bool:
        """Whether what gathered should leave before more is taken."""
        return self._size + self._window.size_bytes >= self._full_bytes

    def fit(self, room: int | None) -> None:
        """Let what leaves be small where the disk has little room, so that it is filled to its end."""
        self._full_bytes = FULL_BYTES if room is None else min(FULL_BYTES, max(room // _PARTS, _LEAST_BYTES))

    def close_window(self) -> None:
        """Encode what the window holds; it waits for `export`."""
        with self._lock:
            self._close_window()

    def export(self) -> None:
        """Send all that gathered to the spool."""
        with self._lock:
            self._close_window()
            self._instruments.loops.flush()
            done, self._rings, self._size = self._rings, {}, 0
            for ring in (Ring.NUMBERS, Ring.FACTS):
                self._export(ring, {ring.value: done[ring]} if ring in done else {})

    def collect(self, *, is_last: bool = False) -> None:
        """Put the newest values into the spool for third parties; the last time the open spans too."""
        with self._lock:
            if is_last:
                self._instruments.loops.finish()
                self._instruments.loops.flush()
            self._instruments.collect()

    def report_drops(self, total: int, *, now: bool = False) -> None:
        """Emit how many records this producer has dropped, when that has changed."""
        if total == self._reported or (not now and time.monotonic() - self._reported_at < REPORT_S):
            return
        self._reported, self._reported_at = total, time.monotonic()
        values = scalars({SDK_DROPPED.name: float(total)})
        self.emit(Measured(at=time.time_ns(), scope=Scope.TOWER, values=values))

    def _draw(self) -> None:
        """Report updates together: third parties look every other second, a turn ends with a phase."""
        if self._undrawn is not None:
            self._report(Count.of(self._indices))
            self._instruments.note(measured(self._undrawn))
            self._undrawn, self._indices = None, []

    def _note(self, event: Event) -> None:
        """Draw an event for third parties, and add the facts that follow from its numbers."""
        self._instruments.note(event)
        if isinstance(event, Measured):
            for seen in non_finite(event):
                self._window.add(seen, size=_OWN_SIZE, counted=0)
                self._instruments.note(seen)

    def _close_window(self) -> None:
        self._draw()
        self._size += self._window.size_bytes
        passed = self._window.take()
        measured = (event for event in passed.numbers if isinstance(event, Measured))
        updates = (event.updates(None) for event in measured if event.scope is Scope.POLICY)
        self._instruments.count_updates(sum(updates))
        self._hold(Ring.NUMBERS, passed.numbers, passed.counted_numbers)
        self._hold(Ring.FACTS, passed.facts, passed.counted_facts)

    def _hold(self, ring: Ring, events: tuple[Event, ...], counted: int) -> None:
        held = self._held[ring]
        held.counted += counted
        held.unsaid += min(sum(not self._emit(event, held.records) for event in events), counted)

    def _export(self, ring: Ring, place: Mapping[str, int]) -> None:
        """One request of a ring's kind; what cannot be encoded is accounted for with its place."""
        held, self._held[ring] = self._held[ring], _Held()
        if held.records:
            body = resource_logs(self._resource.attributes, held.records, self._resource.schema_url)
            self._spool.put(
                Signal.LOGS,
                body,
                is_fact=ring is Ring.FACTS,
                records=held.counted - held.unsaid,
                last_seq=self._seq,
                rings=place,
            )
        if held.spans:
            self._spool.account(held.spans, place)
        if held.unsaid or (place and not held.records and not held.spans):
            self._spool.account(held.unsaid, place, INVALID)

    def _emit(self, event: Event, records: list[bytes]) -> bool:
        try:
            records.append(as_bytes(encode(event), event.at, self._seq + 1))
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            log.warning("a %s could not be encoded: %s", type(event).__name__, error)
            return False
        self._seq += 1
        return True


def started(hello: Hello, *, node: str, sha: str | None, dirty: bool | None) -> Event:
    """The start of the run, with what only the machine knows."""
    return msgspec.structs.replace(hello.started, node=node, git_sha=sha, dirty=dirty)
