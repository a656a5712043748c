"""The spans of a process: phases, below the turn of the training loop that they belong to, and its own.

Rules: a turn begins with an update and ends with the next one, whose number its spans bear; which trace it is
follows from the first of them, so that every process knows it at once. Its own span, `rl.loop`, is emitted
once by the trainer's first rank, when the turn is over. What comes after the last update is below `shutdown`.
A phase whose turn is not known is a trace of its own. One thread at a time. Must not know how spans are sent.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

import overwatch
from overwatch.catalog.phases import LOOP_SPAN, SHUTDOWN_SPAN, Phase, parse_phase, span_of
from overwatch.events import CheckpointSaved, EpisodeEnded, PhaseBegan, PhaseEnded
from overwatch.otlp import wire
from overwatch.sdk.conflate import Count
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import SpanRef, loop_of, parsed, unnumbered

Happened: TypeAlias = EpisodeEnded | CheckpointSaved
"""Events that name the span of their phase."""
Value: TypeAlias = str | int | float
_E = TypeVar("_E", bound=EpisodeEnded | CheckpointSaved | PhaseEnded)
UPDATE: Final = "overwatch.update"
_LEARNS: Final = ("trainer", "learner")
"""Roles whose updates are turns of the loop."""
_WAITING: Final = 1024
"""Phases of a turn that wait for its end; a run that reports no updates has one turn."""
_MANY: Final = 512
"""Spans of one request."""
_REMEMBERED: Final = 64
"""Turns that are not emitted again, however late a phase of them is."""
_REMEMBERED_PHASES: Final = 4
"""Ended phases of a kind: numbers of a device come an update or two later."""
_KINDS: Final = (Phase.ROLLOUT, Phase.CHECKPOINT)
_SCOPE: Final = InstrumentationScope(wire.OURS, overwatch.__version__, wire.SCHEMA_URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A span before it is emitted."""

    name: str
    ref: SpanRef
    above: SpanRef | None = None
    begin: int
    end: int
    attributes: Mapping[str, Value]
    links: Sequence[SpanRef] = ()


@dataclass(slots=True)
class _Turn:
    """A turn whose phases come in."""

    began: int | str
    """The update that it began with."""
    begin: int
    end: int
    phases: list[_Made] = field(default_factory=list)
    """Those that wait for the number of the update that the turn leads to."""


class Loops:
    """Spans of one process of a run."""

    def __init__(self, resource: Resource, export: Callable[[Sequence[ReadableSpan]], object] | None) -> None:
        """Without `export` no span is emitted."""
        self._resource, self._export = resource, export
        # The provider reads which sampler the environment names.
        self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        self._limits = SpanLimits()
        self._ids = RandomIdGenerator()
        self._spans: list[ReadableSpan] = []
        of_run = resource.attributes
        self._run_id = str(of_run.get(wire.RUN_ID, ""))
        self._is_trainer = of_run.get(wire.ROLE, "trainer") in _LEARNS
        self._leads = self._is_trainer and not of_run.get(wire.RANK)
        self._phases = _Phases()
        self._turn: _Turn | None = None
        self._emitted: deque[int | str] = deque(maxlen=_REMEMBERED)
        """The turns that were."""
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
        if self._export is None:
            return event
        begin, reserved = event.at - int(event.duration_s * 1e9), self._phases.take(event)
        began: int | str | None = event.update
        if began is None and follows and self._is_trainer:
            began = unnumbered(self._count) if self._newest is None else self._newest
        if reserved is not None:
            began = reserved.began
        loop = None if began is None else self._below(began, begin, event.at)
        ref = self._fresh(loop) if reserved is None else reserved.ref
        if not self._is_sampled(ref):
            return event
        name, attributes = span_of(event.phase), {"overwatch.phase": event.phase}
        phase = _Made(name=name, ref=ref, above=loop, begin=begin, end=event.at, attributes=attributes)
        turn = self._turn
        if turn is not None and turn.began == began and len(turn.phases) < _WAITING:
            turn.phases.append(phase)
        else:
            self._emit(phase, {UPDATE: began} if isinstance(began, int) else {})
        self._phases.end(event, ref)
        return _naming(event, ref)

    def begins(self, event: PhaseBegan) -> None:
        """Note a phase that was announced."""
        self._phases.begin(event)

    def placed(self, event: Happened) -> Happened:
        """The event with the span of the phase that it happened in; as it is where that is not known."""
        if self._export is None or event.span_id is not None:
            return event
        ref = self._phases.known(event)
        if ref is None and self._phases.is_to_come(event):
            ref = self._reserve(event)
        return event if ref is None else _naming(event, ref)

    def _reserve(self, event: Happened) -> SpanRef | None:
        """Numbers for the span of a phase under way: of the turn under way, where that is known."""
        began: int | str | None = self._newest if self._newest is not None else self._phases.update(event)
        if began is None and self._is_trainer:
            began = unnumbered(self._count)
        ref = self._fresh(None if began is None else loop_of(self._run_id, began))
        if not self._is_sampled(ref):
            return None
        self._phases.reserve(event, _Reserved(ref, began))
        return ref

    def _fresh(self, loop: SpanRef | None) -> SpanRef:
        """Numbers for a new span, of the trace of a turn or of one of its own."""
        trace_id = self._ids.generate_trace_id() if loop is None else loop.trace_id
        return SpanRef(trace_id, self._ids.generate_span_id())

    def _is_sampled(self, ref: SpanRef, above: SpanRef | None = None) -> bool:
        """Whether a trace is sent: decided for a turn as a whole, as all its processes decide."""
        context = None
        if above is not None:
            context = set_span_in_context(NonRecordingSpan(_context(above)), Context())
        judged = self._sampler.should_sample(context, ref.trace_id, LOOP_SPAN)
        return judged.decision is Decision.RECORD_AND_SAMPLE

    def _below(self, began: int | str, begin: int, end: int) -> SpanRef:
        """The span above a phase of the turn that began with this update."""
        turn = self._turn
        if turn is not None and turn.began == began:
            turn.begin, turn.end = min(turn.begin, begin), max(turn.end, end)
        elif self._is_trainer and began not in self._emitted:
            self.finish(began if self._count and isinstance(began, int) else None)
            self._turn = _Turn(began, begin, end)
        return loop_of(self._run_id, began)

    def finish(self, update: int | None = None) -> None:
        """Emit the turn that is over, if there is one, with the number of the update that it led to."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._emitted.append(turn.began)
        if update is None and not self._count and isinstance(turn.began, int):
            update = turn.began
        attributes = {} if update is None else {UPDATE: update}
        for phase in turn.phases:
            self._emit(phase, attributes)
        ref = loop_of(self._run_id, turn.began)
        if self._leads and self._is_sampled(ref):
            # After the last update there is no turn of the loop any more, only its end.
            name = LOOP_SPAN if update is not None or not self._count else SHUTDOWN_SPAN
            self._emit(_Made(name=name, ref=ref, begin=turn.begin, end=turn.end, attributes=attributes))

    def add(self, span: SpanEnded) -> None:
        """Emit a span that the process made itself."""
        ref, above = parsed(span.traceparent), parsed(span.parent)
        if ref is None or not self._is_sampled(ref, above):
            return
        links = [found for link in span.links if (found := parsed(link)) is not None]
        begin = span.at - int(span.duration_s * 1e9)
        self._emit(
            _Made(
                name=span.name, ref=ref, above=above, begin=begin, end=span.at,
                attributes=span.attributes, links=links,
            )
        )  # fmt: skip

    def _emit(self, made: _Made, more: Mapping[str, Value] | None = None) -> None:
        if self._export is None:
            return
        most, longest = self._limits.max_span_attributes, self._limits.max_span_attribute_length
        attributes = BoundedAttributes(most, {**made.attributes, **(more or {})}, max_value_len=longest)
        self._spans.append(
            ReadableSpan(
                made.name,
                _context(made.ref),
                None if made.above is None else _context(made.above),
                self._resource,
                attributes,
                links=[Link(_context(link)) for link in made.links],
                start_time=made.begin,
                end_time=made.end,
                instrumentation_scope=_SCOPE,
            )
        )
        if len(self._spans) >= _MANY:
            self.flush()

    def flush(self) -> None:
        """Hand on what ended: called before the records that it came from count as safe."""
        spans, self._spans = self._spans, []
        if spans and self._export is not None:
            self._export(spans)


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace_id, ref.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _naming(event: _E, ref: SpanRef) -> _E:
    """The event with the numbers of a span."""
    return msgspec.structs.replace(event, trace_id=f"{ref.trace_id:032x}", span_id=f"{ref.span_id:016x}")


@dataclass(frozen=True, slots=True)
class _Reserved:
    """The numbers of a span that is to be made when its phase ends."""

    ref: SpanRef
    began: int | str | None
    """The turn that it belongs to."""


@dataclass(frozen=True, slots=True)
class _Ended:
    begin: int
    end: int
    ref: SpanRef
    update: int | None


class _Phases:
    """In which phase an event happened: episodes end while one collects, checkpoints are saved.

    An event belongs to the phase of its kind that its time lies in. A phase whose span is not made yet gets
    its numbers when the first event of it comes, and keeps them; that is done only where the process has
    shown that it reports such phases, so that no event names a span that never comes. A checkpoint that is
    written beside the training belongs to the phase in which it was begun.
    """

    def __init__(self) -> None:
        self._ended: dict[Phase, deque[_Ended]] = {kind: deque(maxlen=_REMEMBERED_PHASES) for kind in _KINDS}
        self._reserved: dict[Phase, _Reserved] = {}
        self._open: dict[Phase, int] = {}
        """When a phase that was announced began, by its kind."""

    def begin(self, event: PhaseBegan) -> None:
        """Note when a phase began."""
        kind = parse_phase(event.phase)
        if kind in _KINDS:
            self._open[kind] = event.at

    def take(self, event: PhaseEnded) -> _Reserved | None:
        """The numbers that the span of a phase has already; `None` where it may have any."""
        kind = parse_phase(event.phase)
        return None if kind is None else self._reserved.pop(kind, None)

    def end(self, event: PhaseEnded, ref: SpanRef) -> None:
        """Note the span of a phase that ended."""
        kind = parse_phase(event.phase)
        if kind in _KINDS:
            self._open.pop(kind, None)
            begin = event.at - int(event.duration_s * 1e9)
            self._ended[kind].append(_Ended(begin, event.at, ref, event.update))

    def known(self, event: Happened) -> SpanRef | None:
        """The span of the phase that an event happened in, where its numbers are known."""
        kind = _kind(event)
        ended = self._ended[kind]
        for one in reversed(ended):
            if one.begin <= event.at <= one.end:
                return one.ref
        if kind in self._reserved:
            return self._reserved[kind].ref
        is_beside = kind is Phase.CHECKPOINT and kind not in self._open
        return ended[-1].ref if is_beside and ended else None

    def is_to_come(self, event: Happened) -> bool:
        """Whether the phase of an event is under way, and will be reported."""
        kind = _kind(event)
        ended = self._ended[kind]
        return kind in self._open or (bool(ended) and event.at > ended[-1].end)

    def update(self, event: Happened) -> int | None:
        """The update that the newest phase of its kind was of."""
        ended = self._ended[_kind(event)]
        return ended[-1].update if ended else None

    def reserve(self, event: Happened, reserved: _Reserved) -> None:
        """Give the phase under way its numbers."""
        self._reserved[_kind(event)] = reserved


def _kind(event: Happened) -> Phase:
    return Phase.ROLLOUT if isinstance(event, EpisodeEnded) else Phase.CHECKPOINT
