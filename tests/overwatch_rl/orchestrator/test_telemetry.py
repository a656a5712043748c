"""What the orchestrator reports: each thing once, by the names of the catalogue; and its spans."""

from typing import Any

from overwatch.events import CommandApplied, LogLine, RunStateChanged, Severity, Tallied
from overwatch.sdk.frames import SpanEnded
from overwatch.sdk.tracing import opened
from overwatch_rl.orchestrator.telemetry import ROLE, Telemetry
from tests.overwatch_rl.orchestrator.serving import Served, served
from tests.overwatch_rl.recording import KeptRun


def tallies(run: KeptRun) -> dict[tuple[str, ...], float]:
    """The newest count of each series: the metric and the values of its labels."""
    run.close()
    series = [one for event in run.of(Tallied) for one in event.series]
    return {
        (one.metric.partition(".")[2], *sorted(one.labels.values())): one.count or one.sum for one in series
    }


async def _story(server: Served, run_id: str) -> None:
    path = f"/api/v1/runs/{run_id}"
    await server.create(run_id)
    beat = {"run_id": run_id, "status": "running", "step": 0}
    await server.query("POST", f"{path}/heartbeat", beat)
    await server.query("POST", f"{path}/tune", {"values": {"clip": 0.1}}, 201)
    await server.query("POST", f"{path}/resume", None, 201)
    issued = (await server.query("GET", f"{path}/commands/next"))["command"]
    done = {"outcome": "done", "changes": {"clip": {"before": 0.2, "after": 0.1}}}
    await server.query("POST", f"{path}/commands/{issued['id']}/ack", done)
    await server.query("POST", f"{path}/terminate", {"reason": "enough"}, 201)
    server.time.go(50.0)
    await server.service.sweep()
    await server.service.sweep()


def test_the_run_that_is_reported_to_has_facts() -> None:
    """States and what became of commands; counted by their labels, all of them rows of the catalogue."""
    run = KeptRun(role=ROLE)
    served(lambda server: _story(server, run.run_id), telemetry=Telemetry(run))

    moves = [(one.before, one.after, one.by, one.reason) for one in run.of(RunStateChanged)]
    assert moves == [
        ("pending", "running", "learner", None), ("running", "terminating", "local", "enough"),
    ]  # fmt: skip
    applied = run.of(CommandApplied)
    assert [(one.kind, one.outcome, one.changes, one.by) for one in applied] == [
        ("tune", "done", {"clip": "0.2 > 0.1"}, "local"),
    ]  # fmt: skip
    found = tallies(run)
    assert {name: count for name, count in found.items() if "http" not in name[0]} == {
        ("run_state_transitions", "pending", "running"): 1,
        ("run_state_transitions", "running", "terminating"): 1,
        ("commands", "queued", "tune"): 1,
        ("commands", "delivered", "tune"): 1,
        ("commands", "done", "tune"): 1,
        ("commands", "queued", "resume"): 1,
        ("commands", "resume", "superseded"): 1,
        ("commands", "queued", "terminate"): 1,
        ("health_events", "stale"): 1,
        ("heartbeat_latency",): 1,
    }
    assert found["http_request_duration", "/api/v1/runs/{run_id}/heartbeat", "200", "POST"] == 1
    assert run.link.refused == []


def test_other_runs_have_lines_of_log() -> None:
    """Their states are not those of the run that is reported to."""
    run = KeptRun(role=ROLE)
    served(lambda server: _story(server, "other"), telemetry=Telemetry(run))

    lines = [(line.severity, line.message) for line in run.of(LogLine)]
    assert run.of(RunStateChanged) == run.of(CommandApplied) == []
    assert lines[0] == (Severity.INFO, "run other: pending → running")
    assert (Severity.INFO, "run other: tune done") in lines
    assert lines[-1] == (Severity.WARNING, "run other: its learner is stale")
    assert {line.subsystem for line in run.of(LogLine)} == {"orchestrator"}


def test_a_request_goes_on_with_the_trace_of_its_caller() -> None:
    """One whose caller records none makes none; an address is named by its row."""
    run = KeptRun(role=ROLE)
    caller = opened(None)

    async def check(server: Served) -> None:
        await server.create()
        headers: dict[str, Any] = {"traceparent": caller.traceparent}
        await server.get("/health", headers=headers)

    served(check, telemetry=Telemetry(run))
    spans = [(span.name, span.parent) for span in run.of(SpanEnded)]
    assert spans == [("orchestrator.run_health", caller.traceparent)]
