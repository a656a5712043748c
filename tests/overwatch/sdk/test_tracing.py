"""Spans of a run, from its calls to what a collector receives, through a real exporter process."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import overwatch.sdk
from overwatch.events import PhaseEnded
from tests.overwatch.sdk.sink import Sink, http_sink, spans_of


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def test_spans_of_its_own_are_sent_and_accounted_for(sink: Sink) -> None:
    """Alone or below a caller's, between numbers and facts; they are no event, and nothing is missing."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False, role="rollouts")
    with run.span("group") as above:
        run.log("between")
        with run.span("send", above.traceparent) as below:
            below.attributes["sequences"] = 4
        with run.span("poll") as void:
            void.is_void = True
    assert run.flush(10.0)
    report = run.close(5.0)

    assert report.delivered
    assert report.dropped == {}
    spans = spans_of(sink)
    assert [span.name for span in spans] == ["send", "group"]
    assert [span.trace_id.hex() for span in spans] == 2 * [above.traceparent.split("-")[1]]
    assert [span.parent_span_id for span in spans] == [spans[1].span_id, b""]
    assert spans[0].attributes[0].value.int_value == 4
    assert {type(record.event).__name__ for record in sink.records()} == {
        "RunStarted", "LogLine", "RunFinished"
    }  # fmt: skip


@pytest.mark.parametrize("numbers", [(1, 2, 3), (None, None, None), (0, 2048, 4096)])
def test_every_turn_is_a_trace_with_the_number_of_the_update_that_it_led_to(
    sink: Sink, numbers: tuple[int | None, ...]
) -> None:
    """Also the first one; what has no number is counted. What led to none is the end, and bears none.

    A phase that is reported as a fact is of the same turn as those around it.
    """
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    for number in numbers:
        for phase in ("collect", "learn"):
            with run.phase(phase):
                time.sleep(0.001)
        run.fact(PhaseEnded(at=time.time_ns(), phase="env_wait", duration_s=0.0005))
        run.update(update=number, kl_divergence=0.01)
        assert run.flush(10.0)
    with run.phase("checkpoint"):
        pass
    assert run.close(5.0).delivered
    spans = spans_of(sink)
    loops = [span for span in spans if not span.parent_span_id]
    reported = [number if number is not None else place for place, number in enumerate(numbers, start=1)]
    assert [span.name for span in loops] == ["rl.loop"] * 3 + ["shutdown"]
    assert [_update_of(span) for span in loops] == [*reported, None]
    assert len({span.trace_id for span in loops}) == 4
    for loop, names in zip(
        loops, [["rl.sample", "rl.train", "env_wait"]] * 3 + [["checkpoint"]], strict=True
    ):
        below = [span for span in spans if span.parent_span_id == loop.span_id]
        assert [span.name for span in below] == names
        assert {(span.trace_id, _update_of(span)) for span in below} == {(loop.trace_id, _update_of(loop))}


@pytest.mark.parametrize("calls", [1, 40])
def test_the_death_of_an_exporter_costs_no_span_of_what_it_had_delivered(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Spans are as safe as the records beside them: what `flush` has confirmed is there."""
    monkeypatch.setenv("OVERWATCH_EXPORTER", "own")
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    for number in range(calls):
        with run.phase("collect"):
            pass
        with run.span("sample"):
            pass
        run.update(update=number, kl_divergence=0.01)
    assert run.flush(10.0)
    pid = run.exporter_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.close(20.0).dropped == {}

    found = [span.name for span in spans_of(sink)]
    assert {name: found.count(name) for name in ("rl.sample", "rl.loop", "sample")} == {
        "rl.sample": calls, "rl.loop": calls, "sample": calls
    }  # fmt: skip


def _update_of(span: Span) -> int | None:
    return next((pair.value.int_value for pair in span.attributes if pair.key == "overwatch.update"), None)
