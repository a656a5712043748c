"""The phases of a run as spans: below the turn of the training loop that they belong to.

Rules: a turn is the phases of one update; its own span, `rl.loop`, is told once by the trainer's first rank,
when phases of another update come, and at the end. A phase of no update is a trace of its own. One thread at
a time. Must not know how spans are sent.
"""

from collections import deque
from typing import Final

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from overwatch.catalog.phases import LOOP_SPAN, span_of
from overwatch.events import PhaseEnded
from overwatch.otlp import wire
from overwatch.sdk.tracing import Loop, loop_of

_NAME: Final = "overwatch"
_REMEMBERED: Final = 64
"""Turns that are not told again, however late a phase of them is."""


class _Ids(RandomIdGenerator):
    """Numbers of spans: those of a turn are known before."""

    def __init__(self) -> None:
        self.of: Loop | None = None

    def generate_trace_id(self) -> int:
        """That of the turn, or any."""
        return super().generate_trace_id() if self.of is None else self.of.trace_id

    def generate_span_id(self) -> int:
        """As above."""
        return super().generate_span_id() if self.of is None else self.of.span_id


class _Turn(msgspec.Struct):
    """A turn whose phases come in."""

    update: int
    begin: int
    end: int


class Loops:
    """Spans of one process of a run."""

    def __init__(self, resource: Resource, processor: SpanProcessor | None) -> None:
        """Without a `processor` nothing is told."""
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._sends = processor is not None
        if processor is not None:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(_NAME)
        said = resource.attributes
        self._run_id = str(said.get(wire.RUN_ID, ""))
        self._leads = said.get(wire.ROLE, "trainer") == "trainer" and not said.get(wire.RANK)
        self._turn: _Turn | None = None
        self._told: deque[int] = deque(maxlen=_REMEMBERED)

    def ended(self, event: PhaseEnded) -> PhaseEnded:
        """Say a phase as a span too, where spans are sent; the event then names its span."""
        if not self._sends:
            return event
        begin = event.at - int(event.duration_s * 1e9)
        attributes: dict[str, str | int] = {"overwatch.phase": event.phase}
        context = Context()
        if event.update is not None:
            attributes["overwatch.update"] = event.update
            context = self._below(event.update, begin, event.at)
        span = self._tracer.start_span(span_of(event.phase), context, start_time=begin, attributes=attributes)
        span.end(event.at)
        made = span.get_span_context()
        if not made.trace_flags.sampled:
            return event
        return msgspec.structs.replace(
            event, trace_id=f"{made.trace_id:032x}", span_id=f"{made.span_id:016x}"
        )

    def _below(self, update: int, begin: int, end: int) -> Context:
        """Where a phase of this update belongs."""
        loop = loop_of(self._run_id, update)
        turn = self._turn
        if turn is not None and turn.update == update:
            turn.begin, turn.end = min(turn.begin, begin), max(turn.end, end)
        elif self._leads and update not in self._told:
            self.finish()
            self._turn = _Turn(update, begin, end)
        judged = self._provider.sampler.should_sample(None, loop.trace_id, LOOP_SPAN)
        sampled = judged.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        above = SpanContext(loop.trace_id, loop.span_id, is_remote=False, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(above), Context())

    def finish(self) -> None:
        """Tell the turn that is over, if there is one."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._told.append(turn.update)
        attributes = {"overwatch.update": turn.update}
        self._ids.of = loop_of(self._run_id, turn.update)
        try:
            span = self._tracer.start_span(LOOP_SPAN, Context(), start_time=turn.begin, attributes=attributes)
        finally:
            self._ids.of = None
        span.end(turn.end)

    def flush(self, timeout_ms: int) -> bool:
        """Hand on what was told."""
        return self._provider.force_flush(timeout_ms)
