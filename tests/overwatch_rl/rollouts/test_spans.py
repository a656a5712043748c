"""One group's trace, from its handler through the server to the trainer; and how many spans there are."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import overwatch.sdk
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import loop_of, opened
from overwatch_rl.rollouts.calls import Target
from overwatch_rl.rollouts.client import Assignment, Handler, Settings
from overwatch_rl.rollouts.consumer import Consumer
from overwatch_rl.rollouts.telemetry import start_handler_run
from overwatch_rl.web.spans import Spans, named
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.overwatch_rl.recording import KeptRun
from tests.overwatch_rl.rollouts.serving import group, serving

END_S = 60.0


@contextmanager
def server(endpoint: str) -> Iterator[str]:
    """The real program as a part of the run `flight`; its address."""
    command = [sys.executable, "-m", "overwatch_rl.cli", "rollouts", "--listen", "127.0.0.1:0",
               "--durability", "memory", "--run-id", "flight", "--endpoint", endpoint]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[3].rstrip(",")
        process.terminate()
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        process.communicate()


def spans_of(sink: Sink) -> dict[str, dict[str, list[Any]]]:
    """What arrived, by the role of its process and the span's name."""
    found: dict[str, dict[str, list[Any]]] = {}
    for path, body in sink.bodies:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
                of_role = found.setdefault(attributes["overwatch.role"], {})
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        of_role.setdefault(span.name, []).append(span)
    return found


def test_one_trace_is_found_in_handler_server_and_trainer() -> None:
    """The server goes on with the handler's; its batch and the trainer's, in the loop's turn, link to it."""
    with http_sink() as sink, server(sink.endpoint) as url:
        trainer_run = overwatch.sdk.start(run_id="flight", endpoint=sink.endpoint, sample=False, quiet=True)
        trainer_run.update(update=3, kl_divergence=0.01)
        handler_run = start_handler_run("flight", sink.endpoint, 1)
        with closing(Consumer(Target(url=url), trainer_run)) as trainer:
            trainer.register(batch_size=2, max_token_len=8)
            assert isinstance(trainer.try_batch(), dict)
            settings = Settings(url=url, name="maths", group_size=2)
            handler = Handler(settings, run=handler_run)

            def generate(assignment: Assignment) -> dict[str, Any]:
                with assignment.part("rl.reward"):
                    return group()

            thread = threading.Thread(target=handler.run, args=(generate,))
            thread.start()
            batch = trainer.batch()
            handler.stop()
            thread.join()
            assert batch is not None
            assert trainer.acknowledge(batch)
        assert handler_run.close(5.0).delivered
        assert trainer_run.close(5.0).delivered

    found = spans_of(sink)
    handled, served, learned = found["handler"], found["rollouts"], found["trainer"]
    trace_id = batch.items[0]["traceparent"].split("-")[1]
    parts = {
        name: [span for span in spans if span.trace_id.hex() == trace_id] for name, spans in handled.items()
    }
    ((whole,), (sampled,), (scored,), (sent,)) = (
        parts[name] for name in ("rollouts.group", "rl.sample", "rl.reward", "rollouts.send")
    )
    assert whole.parent_span_id == b""
    assert sampled.parent_span_id == sent.parent_span_id == whole.span_id
    assert scored.parent_span_id == sampled.span_id
    (ingested,) = (span for span in served["rollouts.ingest"] if span.trace_id.hex() == trace_id)
    assert ingested.parent_span_id == sent.span_id
    (consumed,), (batched,) = learned["rollouts.consume"], served["rollouts.batch"]
    turn = loop_of("flight", 3)
    assert (consumed.trace_id.hex(), consumed.parent_span_id.hex()) == (
        f"{turn.trace_id:032x}", f"{turn.span_id:016x}"
    )  # fmt: skip
    assert (batched.trace_id, batched.parent_span_id) == (consumed.trace_id, consumed.span_id)
    for span in (batched, consumed):
        assert [(link.trace_id, link.span_id) for link in span.links] == [
            (ingested.trace_id, ingested.span_id)
        ]


def test_a_process_makes_a_bounded_number_of_spans_a_second() -> None:
    """Two thousand groups of a second, all recorded by their senders, are a burst and then its rate."""
    run, now = KeptRun(role="rollouts"), 0.0
    spans = Spans(run, 20.0, lambda: now)
    for _ in range(3):
        for _ in range(2_000):
            with spans.within(opened().traceparent, "rollouts.ingest"):
                pass
            now += 1 / 2_000

    assert 100 + 3 * 20 - 1 <= len(run.of(SpanEnded)) <= 100 + 3 * 20
    assert run.link.refused == []


def test_what_came_to_nothing_leaves_room_for_another() -> None:
    """A trainer asks many times for a batch; only one that it gets is a span."""
    run = KeptRun()
    spans = Spans(run, 1.0, lambda: 0.0)
    for number in range(50):
        with spans.root("rollouts.consume") as span:
            assert span is not None
            span.is_void = number < 49

    assert [span.name for span in run.of(SpanEnded)] == ["rollouts.consume"]


def test_a_caller_that_records_nothing_gets_no_span() -> None:
    """Nor does one without a header; what is not measured here can still be linked to."""
    run = KeptRun()
    spans = Spans(run, 1.0)
    given = opened().traceparent
    for header in (None, "", "no header", given[:-1] + "0"):
        with spans.within(header, "rollouts.ingest") as span:
            assert span is None
            assert named(span, header) is None
    with Spans(None, 1.0).within(given, "rollouts.ingest") as span:
        assert named(span, given) == given
    assert run.of(SpanEnded) == []


def test_a_groups_trace_survives_the_server(tmp_path: Path) -> None:
    """It is logged with the group, also by a server that reports nothing; others have no such key."""
    given = opened().traceparent

    async def lives() -> None:
        async with serving(tmp_path) as server:
            await server.start()
            await server.post("/scored_data", group(first=1), headers={"traceparent": given})
            await server.post("/scored_data", group(first=4), headers={"traceparent": given[:-1] + "0"})
        async with serving(tmp_path) as server:
            items = (await server.get("/batch"))["items"]
            assert [item.get("traceparent", "absent") for item in items] == [given, "absent"]

    asyncio.run(lives())
