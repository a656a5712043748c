"""The spans of a process: phases, below the turn of the training loop that they belong to, and its own.

Rules: a turn begins with an update and ends with the next one, whose number its spans bear; which trace it is
follows from the first of them, so that every process knows it at once. Its own span, `rl.loop`, is emitted
once by the trainer's first rank, when the turn is over and at the end. A phase whose turn is not known
is a trace of its own. One thread at a time. Must not know how spans are sent.
"""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, TraceFlags, set_span_in_context

import overwatch
from overwatch.catalog.phases import LOOP_SPAN, span_of
from overwatch.events import PhaseBegan, PhaseEnded
from overwatch.otlp import wire
from overwatch.sdk.conflate import Count
from overwatch.sdk.exporter.within import Happened, Reserved, Within
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import SpanRef, loop_of, parsed, unnumbered

UPDATE: Final = "overwatch.update"
_LEARNS: Final = ("trainer", "learner")
"""Roles whose updates are turns of the loop."""
_WAITING: Final = 1024
"""Phases of a turn that wait for its end; a run that reports no updates has one turn."""
_MANY: Final = 512
"""Spans of one request."""
_REMEMBERED: Final = 64
"""Turns that are not told again, however late a phase of them is."""


class _Ids(RandomIdGenerator):
    """Numbers of spans: those of a turn are known before, and those that its process made itself."""

    def __init__(self) -> None:
        self.of: SpanRef | None = None

    def generate_trace_id(self) -> int:
        """The known one, or any."""
        return super().generate_trace_id() if self.of is None else self.of.trace_id

    def generate_span_id(self) -> int:
        """As above."""
        return super().generate_span_id() if self.of is None else self.of.span_id


@dataclass(slots=True)
class _Turn:
    """A turn whose phases come in."""

    began: int | str
    """The update that it began with."""
    begin: int
    end: int
    phases: list[tuple[Span, int]] = field(default_factory=list)
    """Those that wait for the number of the update that the turn leads to, each with its end."""


class _Ended(SpanProcessor):
    """Spans that ended, until they are handed on."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._spans: list[ReadableSpan] = []
        self._lock = threading.Lock()

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it; many are handed on at once."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            self._spans.append(span)
            is_full = len(self._spans) >= _MANY
        if is_full:
            self.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 its interface
        """Hand on what there is."""
        with self._lock:
            spans, self._spans = self._spans, []
        if spans:
            self._exporter.export(spans)
        return True


class Loops:
    """Spans of one process of a run."""

    def __init__(self, resource: Resource, exporter: SpanExporter | None) -> None:
        """Without an `exporter` no span is emitted."""
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._sends = exporter is not None
        if exporter is not None:
            self._provider.add_span_processor(_Ended(exporter))
        self._tracer = self._provider.get_tracer(wire.OURS, overwatch.__version__, wire.SCHEMA_URL)
        said = resource.attributes
        self._run_id = str(said.get(wire.RUN_ID, ""))
        self._is_trainer = said.get(wire.ROLE, "trainer") in _LEARNS
        self._leads = self._is_trainer and not said.get(wire.RANK)
        self._within = Within()
        self._turn: _Turn | None = None
        self._told: deque[int | str] = deque(maxlen=_REMEMBERED)
        self._count = 0
        """Updates so far."""
        self._newest: int | None = None
        """Number of the newest."""

    def reported(self, count: Count) -> None:
        """Note updates of this process: the turn that led to them is over."""
        if not count.n:
            return
        self._count, self._newest = self._count + count.n, count.last
        if self._turn is not None and self._turn.began != count.last:
            self.finish(self._count if count.last is None else count.last)

    def ended(self, event: PhaseEnded, *, follows: bool = False) -> PhaseEnded:
        """Emit a phase as a span too, where spans are sent; the event then names its span.

        One without a number is of the turn under way where it `follows` the updates of this process.
        """
        if not self._sends:
            return event
        begin = event.at - int(event.duration_s * 1e9)
        reserved = self._within.take(event)
        began: int | str | None = event.update
        if began is None and follows and self._is_trainer:
            began = unnumbered(self._count)
        if reserved is not None:
            began = reserved.began
        context = Context() if began is None else self._below(began, begin, event.at)
        attributes = {"overwatch.phase": event.phase}
        self._ids.of = None if reserved is None else reserved.ref
        try:
            span = self._tracer.start_span(
                span_of(event.phase), context, start_time=begin, attributes=attributes
            )
        finally:
            self._ids.of = None
        self._end(span, began, event.at)
        made = span.get_span_context()
        if not made.trace_flags.sampled:
            return event
        self._within.end(event, SpanRef(made.trace_id, made.span_id))
        return msgspec.structs.replace(
            event, trace_id=f"{made.trace_id:032x}", span_id=f"{made.span_id:016x}"
        )

    def begins(self, event: PhaseBegan) -> None:
        """Note a phase that was announced."""
        self._within.begin(event)

    def placed(self, event: Happened) -> Happened:
        """The event with the span of the phase that it happened in; as it is where that is not known."""
        if not self._sends or event.span_id is not None:
            return event
        ref = self._within.known(event)
        if ref is None and self._within.is_to_come(event):
            ref = self._reserve(event)
        if ref is None:
            return event
        return msgspec.structs.replace(event, trace_id=f"{ref.trace_id:032x}", span_id=f"{ref.span_id:016x}")

    def _reserve(self, event: Happened) -> SpanRef | None:
        """Numbers for the span of a phase under way: of the turn under way, where that is known."""
        began: int | str | None = self._newest if self._newest is not None else self._within.update(event)
        if began is None and self._is_trainer:
            began = unnumbered(self._count)
        fresh = SpanRef(self._ids.generate_trace_id(), self._ids.generate_span_id())
        ref = fresh if began is None else fresh._replace(trace_id=loop_of(self._run_id, began).trace_id)
        judged = self._provider.sampler.should_sample(None, ref.trace_id, LOOP_SPAN)
        if judged.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        self._within.reserve(event, Reserved(ref, began))
        return ref

    def _end(self, span: Span, began: int | str | None, at: int) -> None:
        """End a phase's span, at once where no turn of this process waits with it."""
        turn = self._turn
        if turn is not None and turn.began == began and len(turn.phases) < _WAITING:
            turn.phases.append((span, at))
            return
        if isinstance(began, int):
            span.set_attribute(UPDATE, began)
        span.end(at)

    def _below(self, began: int | str, begin: int, end: int) -> Context:
        """Where a phase of the turn that began with this update belongs."""
        loop = loop_of(self._run_id, began)
        turn = self._turn
        if turn is not None and turn.began == began:
            turn.begin, turn.end = min(turn.begin, begin), max(turn.end, end)
        elif self._is_trainer and began not in self._told:
            self.finish(began if self._count and isinstance(began, int) else None)
            self._turn = _Turn(began, begin, end)
        judged = self._provider.sampler.should_sample(None, loop.trace_id, LOOP_SPAN)
        sampled = judged.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        above = SpanContext(loop.trace_id, loop.span_id, is_remote=False, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(above), Context())

    def finish(self, update: int | None = None) -> None:
        """Emit the turn that is over, if there is one, with the number of the update that it led to."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._told.append(turn.began)
        if update is None and not self._count and isinstance(turn.began, int):
            update = turn.began
        attributes = {} if update is None else {UPDATE: update}
        for span, end in turn.phases:
            span.set_attributes(attributes)
            span.end(end)
        if not self._leads:
            return
        self._ids.of = loop_of(self._run_id, turn.began)
        try:
            loop = self._tracer.start_span(LOOP_SPAN, Context(), start_time=turn.begin, attributes=attributes)
        finally:
            self._ids.of = None
        loop.end(turn.end)

    def add(self, span: SpanEnded) -> None:
        """Emit a span that the process made itself."""
        made = parsed(span.traceparent)
        if made is None or not self._sends:
            return
        above = parsed(span.parent)
        links = [Link(_context(found)) for link in span.links if (found := parsed(link)) is not None]
        context = (
            Context() if above is None else set_span_in_context(NonRecordingSpan(_context(above)), Context())
        )
        begin = span.at - int(span.duration_s * 1e9)
        self._ids.of = made
        try:
            started = self._tracer.start_span(
                span.name, context, links=links, start_time=begin, attributes=span.attributes
            )
        finally:
            self._ids.of = None
        started.end(span.at)

    def flush(self) -> None:
        """Hand on what ended: called before the records that it came from count as safe."""
        self._provider.force_flush()

    def close(self) -> None:
        """End the threads of OpenTelemetry."""
        self._provider.shutdown()


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace_id, ref.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
