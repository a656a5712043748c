"""Phases as spans: below the turn of the loop that they belong to, whoever emits them."""

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from overwatch.events import CheckpointSaved, Column, EpisodeEnded, PhaseBegan, PhaseEnded
from overwatch.sdk.conflate import Count
from overwatch.sdk.exporter.loops import Loops
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import loop_of, opened

SECOND = 10**9


class Reported:
    """The spans of one process."""

    def __init__(self, role: str = "trainer", rank: int = 0) -> None:
        self._exporter = InMemorySpanExporter()
        stated = {"rl.run.id": "run", "overwatch.role": role, "overwatch.rank": rank}
        self.loops = Loops(Resource(stated), self._exporter.export)

    def ended(
        self, phase: str, at_s: float, update: int | None = None, duration_s: float = 1.0
    ) -> PhaseEnded:
        """A phase that ended."""
        at = int(at_s * SECOND)
        return self.loops.ended(PhaseEnded(at=at, phase=phase, duration_s=duration_s, update=update))

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order of their ends."""
        self.loops.flush()
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """All spans of a name."""
        return [span for span in self.spans if span.name == name]


def place(span: ReadableSpan) -> tuple[int, int | None]:
    """The trace, and the span above."""
    assert span.context is not None
    return span.context.trace_id, None if span.parent is None else span.parent.span_id


def test_phases_are_below_the_turn_of_their_update() -> None:
    """A turn is emitted once, from the first beginning to the last end, under the draft's names."""
    reports = Reported()
    for update in (4, 5):
        for phase, at_s in (("collect", 2), ("reward", 3), ("gae", 4), ("sgd", 6), ("sync_weights", 7)):
            reports.ended(phase, 10 * update + at_s, update, 0.5)
    reports.loops.finish()
    reports.loops.finish()

    names = ["rl.sample", "rl.reward", "gae", "rl.train", "rl.sync", "rl.loop"]
    assert [span.name for span in reports.spans] == 2 * names
    for update, spans in ((4, reports.spans[:6]), (5, reports.spans[6:])):
        loop = loop_of("run", update)
        *phases, turn = spans
        assert {place(span) for span in phases} == {(loop.trace_id, loop.span_id)}
        assert place(turn) == (loop.trace_id, None)
        assert turn.context is not None
        assert turn.context.span_id == loop.span_id
        assert (turn.start_time, turn.end_time) == (
            (10 * update + 1.5) * SECOND,
            (10 * update + 7) * SECOND,
        )
        assert dict(turn.attributes or {}) == {"overwatch.update": update}
        assert (phases[0].attributes or {})["overwatch.phase"] == "collect"


def test_other_processes_add_to_the_turn_that_the_trainer_emits() -> None:
    """Ranks and actors meet it in its trace without a word between them."""
    trainer, *others = Reported(), Reported(rank=1), Reported(role="actor")
    for one in (trainer, *others):
        one.ended("rollout", 5, 3)
        one.loops.finish()

    assert len(trainer.named("rl.loop")) == 1
    assert [span.name for one in others for span in one.spans] == ["rl.sample", "rl.sample"]
    assert len({place(one.named("rl.sample")[0]) for one in (trainer, *others)}) == 1


def test_a_turn_is_not_emitted_again_when_phases_of_it_are_late() -> None:
    """Also where an actor is behind by one."""
    reports = Reported()
    for update, at_s in ((1, 1), (2, 2), (1, 3), (2, 4)):
        reports.ended("rollout", at_s, update)
    reports.loops.finish()

    assert [(span.attributes or {})["overwatch.update"] for span in reports.named("rl.loop")] == [1, 2]
    assert len(reports.named("rl.sample")) == 4


def test_a_phase_of_no_update_is_a_trace_of_its_own() -> None:
    """Nothing states what it belongs to."""
    reports = Reported()
    events = [reports.ended("rollout", at_s) for at_s in (1, 2)]
    reports.loops.finish()

    assert [span.parent for span in reports.spans] == [None, None]
    assert len({event.trace_id for event in events}) == 2


def test_a_turn_is_sampled_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler that the environment names decides for the turn, and its phases follow."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    reports = Reported()
    events = [
        reports.ended(phase, update, update) for update in range(200) for phase in ("rollout", "update")
    ]
    reports.loops.finish()

    traces = {span.context.trace_id for span in reports.spans if span.context is not None}
    assert 50 < len(traces) < 150
    assert len(reports.spans) == 3 * len(traces)
    assert sum(event.trace_id is not None for event in events) == 2 * len(traces)


def test_without_spans_an_event_names_none() -> None:
    """It is as it was."""
    event = PhaseEnded(at=SECOND, phase="rollout", duration_s=1.0, update=1)
    assert Loops(Resource({}), None).ended(event) is event


def test_a_span_of_its_own_is_below_its_caller_and_links_others() -> None:
    """It keeps the numbers under which it was named to others, and is of no turn of the loop."""
    reports = Reported(role="rollouts")
    caller, span = opened(), opened(loop_of("run", 3).traceparent)
    for linked in (caller.traceparent, caller.traceparent, caller.traceparent[:-1] + "0", "no header", None):
        span.link(linked)
    reports.loops.add(
        SpanEnded(
            at=5 * SECOND,
            name="rollouts.batch",
            duration_s=2.0,
            traceparent=span.traceparent,
            parent=loop_of("run", 3).traceparent,
            links=tuple(link.traceparent for link in span.links),
            attributes={"groups": 2},
        )
    )
    reports.loops.add(SpanEnded(at=5 * SECOND, name="group", duration_s=1.0, traceparent=caller.traceparent))

    below, root = reports.spans
    assert place(below) == (loop_of("run", 3).trace_id, loop_of("run", 3).span_id)
    assert below.context is not None
    assert below.context.span_id == span.ref.span_id
    assert [(link.context.trace_id, link.context.span_id) for link in below.links] == [caller.ref]
    assert (below.name, below.start_time, below.end_time) == ("rollouts.batch", 3 * SECOND, 5 * SECOND)
    assert below.attributes == {"groups": 2}
    assert place(root) == (caller.ref.trace_id, None)


def _episode(at_s: float) -> EpisodeEnded:
    one = Column.of([0.0])
    return EpisodeEnded(at=int(at_s * SECOND), env_id=one, episode_return=one)


def _saved(at_s: float) -> CheckpointSaved:
    return CheckpointSaved(at=int(at_s * SECOND), path="p")


def test_episodes_name_the_span_of_the_phase_that_they_ended_in() -> None:
    """Whether they come before the phase ends, or after it, as what a device has computed does."""
    reports = Reported()
    first = reports.ended("collect", 2, 0, 1.0)
    reports.loops.reported(Count(1, 1, 1))
    late, early = reports.loops.placed(_episode(1.5)), reports.loops.placed(_episode(4.5))
    assert reports.loops.placed(_episode(4.6)).span_id == early.span_id
    second = reports.ended("collect", 5, 1, 1.0)
    reports.loops.finish()

    assert (late.trace_id, late.span_id) == (first.trace_id, first.span_id)
    assert (early.trace_id, early.span_id) == (second.trace_id, second.span_id)
    assert {place(span) for span in reports.named("rl.sample")} == {
        (loop.trace_id, loop.span_id) for loop in (loop_of("run", 0), loop_of("run", 1))
    }


def test_a_checkpoint_names_the_span_of_the_phase_that_began_it() -> None:
    """The one under way, or the newest where it was written beside the training."""
    reports = Reported(role="learner")
    reports.loops.reported(Count(1, 1, 1))
    reports.loops.begins(PhaseBegan(at=3 * SECOND, phase="checkpoint"))
    within = reports.loops.placed(_saved(3.5))
    phase = reports.ended("checkpoint", 4, 1, 1.0)
    beside = reports.loops.placed(_saved(9))

    assert (within.trace_id, within.span_id) == (phase.trace_id, phase.span_id)
    assert (beside.trace_id, beside.span_id) == (phase.trace_id, phase.span_id)


def test_an_event_names_no_span_that_never_comes() -> None:
    """A process that emits no phases of its kind, and one that sends no spans."""
    assert Reported().loops.placed(_episode(1)).span_id is None
    assert Reported().loops.placed(_saved(1)).span_id is None
    silent = Loops(Resource({"rl.run.id": "run"}), None)
    silent.ended(PhaseEnded(at=2 * SECOND, phase="collect", duration_s=1.0, update=0))
    assert silent.placed(_episode(1.5)).span_id is None
