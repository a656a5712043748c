"""The exporter's middle: events come in, numbered log records leave for the spool a tenth of a second later.

Rules: every record gets the next number of this epoch, so a lost one leaves a gap that the tower sees; what
came out of a ring leaves in one request of its kind, so that a crash neither loses nor repeats it. Safe from
any thread. Must not know sockets or how rings are read.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import (
    LoggerProvider,
    LogRecordLimits,
    LogRecordProcessor,
    ReadableLogRecord,
    ReadWriteLogRecord,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context
from opentelemetry.util.types import AnyValue

import overwatch
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
    scalars,
)
from overwatch.otlp import wire
from overwatch.otlp.encode import Pieces, encode
from overwatch.sdk.conflate import Count
from overwatch.sdk.exporter.instruments import Instruments
from overwatch.sdk.exporter.nonfinite import non_finite
from overwatch.sdk.exporter.spooling import LogSpooler, Parcel, Store
from overwatch.sdk.exporter.window import Window
from overwatch.sdk.frames import Hello, SpanEnded
from overwatch.sdk.rings.gathered import Updates

log: Final = logging.getLogger("overwatch.exporter")

INVALID: Final = "invalid"
"""Why a record is gone that cannot be read or said."""
TELL_S: Final = 1.0
"""How often a changed number of drops is told."""
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


class Gatherer(LogRecordProcessor):
    """OpenTelemetry's door: records gather, by ring, until they are exported as one batch."""

    def __init__(self, spooler: LogSpooler) -> None:
        self._spooler = spooler
        self._batches: dict[Ring, list[ReadableLogRecord]] = {ring: [] for ring in Ring}
        self.ring = Ring.FACTS
        """Whose record is emitted next."""

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Let a record wait."""
        self._batches[self.ring].append(
            ReadableLogRecord(
                log_record=log_record.log_record,
                resource=log_record.resource or Resource.get_empty(),
                instrumentation_scope=log_record.instrumentation_scope,
                limits=log_record.limits,
            )
        )

    def export(self, ring: Ring, parcel: Parcel) -> bool:
        """Export what gathered of a ring; whether there was anything. Raises what encoding raises."""
        batch, self._batches[ring] = self._batches[ring], []
        if batch:
            self._spooler.parcel = parcel
            self._spooler.export(batch)
        return bool(batch)

    def shutdown(self) -> None:
        """Nothing more comes."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 its interface
        """Whether nothing waits."""
        return not any(self._batches.values())


@dataclass(slots=True)
class _Held:
    """What gathered of one ring since it was exported last."""

    counted: int = 0
    """Records of the trainer."""
    unsaid: int = 0
    """Those of them that could not be said."""
    spans: int = 0
    """Records besides that are spans."""


class Station:
    """Says events. `said` is the last number that was used before."""

    def __init__(
        self,
        resource: Resource,
        store: Store,
        instruments: Instruments,
        started: RunStarted,
        said: int = 0,
    ) -> None:
        self._instruments = instruments
        self._store = store
        self._spooler = LogSpooler(store)
        self._gatherer = Gatherer(self._spooler)
        limits = LogRecordLimits(
            max_log_record_attributes=LogRecordLimits.UNSET,
            max_log_record_attribute_length=LogRecordLimits.UNSET,
        )
        provider = LoggerProvider(resource=resource, shutdown_on_exit=False, log_record_limits=limits)
        provider.add_log_record_processor(self._gatherer)
        self._logger = provider.get_logger(wire.OURS, overwatch.__version__, wire.SCHEMA_URL)
        self._lock = threading.Lock()
        self._window = Window(started.judged_by, started.config)
        self._seq = said
        self._rings: dict[Ring, int] = {}
        self._newest: int | None = None
        """Number of the newest update."""
        self._told = 0
        self._told_at = 0.0
        self._held = {ring: _Held() for ring in Ring}
        self._size = 0
        self._full_bytes = FULL_BYTES

    def take(self, event: Event, place: Place, *, size: int, counted: int, is_rolled: bool = False) -> None:
        """Take an event that the trainer emitted; it stands for `counted` records."""
        with self._lock:
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

    def take_many(self, said: Updates | Event, place: Place, *, size: int, counted: int) -> None:
        """Take `counted` records at once, none of whose values need a fact of their own."""
        with self._lock:
            if isinstance(said, Updates):
                self._window.add_updates(said)
                self._report(said.count)
            else:
                self._window.add(said, size=size, counted=counted)
            self._instruments.note(said.newest if isinstance(said, Updates) else said)
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
        attributes: dict[str, AnyValue] = {
            wire.ENTITY_TYPE: wire.RUN_ENTITY,
            wire.ENTITY_ID: {wire.RUN_ID: run_id},
            wire.ENTITY_DESCRIPTION: {name: word for name, word in known.items() if word is not None},
        }
        with self._lock:
            self._gatherer.ring = Ring.FACTS
            record = LogRecord(
                timestamp=started.at, severity_number=SeverityNumber.INFO, attributes=attributes,
                event_name=wire.ENTITY_STATE, context=_NO_SPAN,
            )  # fmt: skip
            self._logger.emit(record)

    def _report(self, count: Count) -> None:
        """Report updates to the turns of the loop."""
        self._instruments.loops.reported(count)
        self._newest = count.last

    def skip(self, place: Place, *, counted: int) -> None:
        """Pass over records that say nothing."""
        with self._lock:
            held = self._held[place.ring]
            held.counted += counted
            held.unsaid += counted
            self._rings[place.ring] = place.sequence

    def say(self, event: Event) -> None:
        """Take an event of the exporter's own."""
        with self._lock:
            self._window.add(event, size=_OWN_SIZE, counted=0)
            self._note(event)

    @property
    def order(self) -> int:
        """Of the newest request."""
        return self._spooler.order

    @property
    def said(self) -> int:
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
        """Say what the window holds; it waits for `export`."""
        with self._lock:
            self._close_window()

    def export(self) -> Mapping[str, int]:
        """Send all that gathered to the spool; by ring, the last record that is safe there now."""
        with self._lock:
            self._close_window()
            self._instruments.loops.flush()
            done, self._rings, self._size = self._rings, {}, 0
            for ring in (Ring.NUMBERS, Ring.FACTS):
                self._export(ring, {ring.value: done[ring]} if ring in done else {})
            return {ring.value: sequence for ring, sequence in done.items()}

    def tell_drops(self, total: int, *, now: bool = False) -> None:
        """Say how many records this producer has dropped, when that has changed."""
        if total == self._told or (not now and time.monotonic() - self._told_at < TELL_S):
            return
        self._told, self._told_at = total, time.monotonic()
        values = scalars({SDK_DROPPED.name: float(total)})
        self.say(Measured(at=time.time_ns(), scope=Scope.TOWER, values=values))

    def _note(self, event: Event) -> None:
        """Draw an event for third parties, and add the facts that follow from its numbers."""
        self._instruments.note(event)
        if isinstance(event, Measured):
            for seen in non_finite(event):
                self._window.add(seen, size=_OWN_SIZE, counted=0)
                self._instruments.note(seen)

    def _close_window(self) -> None:
        self._size += self._window.size_bytes
        passed = self._window.take()
        measured = (event for event in passed.numbers if isinstance(event, Measured))
        updates = (event.updates(None) for event in measured if event.scope is Scope.POLICY)
        self._instruments.count_updates(sum(updates))
        self._hold(Ring.NUMBERS, passed.numbers, passed.counted_numbers)
        self._hold(Ring.FACTS, passed.facts, passed.counted_facts)

    def _hold(self, ring: Ring, events: tuple[Event, ...], counted: int) -> None:
        self._gatherer.ring = ring
        held = self._held[ring]
        held.counted += counted
        held.unsaid += min(sum(not self._emit(event) for event in events), counted)

    def _export(self, ring: Ring, place: Mapping[str, int]) -> None:
        """One request of a ring's kind; what cannot be said in it is accounted for with its place."""
        held, self._held[ring] = self._held[ring], _Held()
        records, unsaid = held.counted - held.unsaid, held.unsaid
        parcel = Parcel(is_fact=ring is Ring.FACTS, records=records, last_seq=self._seq, rings=place)
        try:
            is_placed = self._gatherer.export(ring, parcel)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            log.warning("%d records could not be encoded: %s", records, error)
            is_placed, unsaid = False, held.counted
        if held.spans:
            self._store.hand_on(held.spans, place)
        if unsaid or (place and not is_placed and not held.spans):
            self._store.refuse(unsaid, INVALID, place)

    def _emit(self, event: Event) -> bool:
        try:
            pieces = encode(event)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            log.warning("a %s could not be said: %s", type(event).__name__, error)
            return False
        self._seq += 1
        self._logger.emit(
            LogRecord(
                timestamp=event.at,
                severity_number=SeverityNumber(pieces.severity),
                body=pieces.body,
                attributes={**pieces.attributes, wire.SEQ: self._seq},
                event_name=pieces.event_name,
                context=_context(pieces) if pieces.trace_id else _NO_SPAN,
            )
        )
        return True


_NO_SPAN: Final = Context()


def _context(pieces: Pieces) -> Context:
    """The span that a line was written in, as OpenTelemetry hands it to a record."""
    trace_id, span_id = int.from_bytes(pieces.trace_id), int.from_bytes(pieces.span_id)
    return set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True)), _NO_SPAN)


def started(hello: Hello, *, node: str, sha: str | None, dirty: bool | None) -> Event:
    """The start of the run, with what only the machine knows."""
    return msgspec.structs.replace(hello.started, node=node, git_sha=sha, dirty=dirty)
