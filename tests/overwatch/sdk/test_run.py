"""A run, from its calls to what a collector receives, through a real exporter process."""

import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import overwatch.sdk
from overwatch.catalog import KL, Scope, Stage
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EnvsRemoved,
    EpisodeEnded,
    GateEvaluated,
    LogLine,
    Measured,
    MetricInfo,
    NonFiniteSeen,
    PhaseBegan,
    PhaseEnded,
    RunFinished,
    RunStarted,
    SeedStageChanged,
    Severity,
)
from overwatch.otlp import wire
from overwatch.sdk.lifetime import EXIT_S
from tests.overwatch.sdk.sink import (
    DEADLINE_S,
    Sink,
    attribute_count,
    grpc_sink,
    http_sink,
    partial_success,
    silent_server,
    spans_of,
)
from tests.ports import free_port


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def test_updates_that_come_at_once_are_each_on_the_wire(sink: Sink) -> None:
    """However many names they have, and whether or not they are numbered."""
    run = overwatch.sdk.start(run_id="burst", endpoint=sink.endpoint, sample=False)
    for update in range(38):
        run.update(update=update if update < 19 else None, **{f"n{place}": update for place in range(32)})
    run.close(DEADLINE_S)
    received = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert [event.values["overwatch.custom.n31"].first() for event in received] == list(range(38))
    assert sum(event.updates(None) for event in received) == 38


def report_everything(run: overwatch.sdk.Run) -> None:
    """One call of every kind."""
    run.update(update=3, kl_divergence=0.01, entropy=np.float32(0.5), my_number=7)
    run.envs(step=5, reward=[1.0, 2.0, -1.5], metric=np.array([1, 2, 3]), lane="cuda:0", step_time=0.25)
    run.slots(
        env_id=[0, 1],
        slot=["a", "b"],
        stage=["blending", Stage.PRUNED],
        blueprint=["norm", None],
        alpha=[0.5, 1.0],
        age=[3, 4],
        grad=[0.62, 0.04],
        step=5,
    )
    run.episodes(env_id=[1, 2], episode_return=[10.0, 11.0], length=[100, 101], metric=[0.5, 0.25])
    run.actions(env_id=[0, 1], op=["grow", "wait"], slot=["a", None], step=5)
    run.seed_stage_changed(
        env_id=1, slot="a", seed_id="s1", before="training", after=Stage.BLENDING, alpha=0.1, age=9, gain=0.5
    )
    run.gate_evaluated(
        env_id=1, slot="a", seed_id="s1", gate="G2", passed=False, score=0.3, checks_failed=["gain"]
    )
    run.env_crashed(2, ValueError("boom"), step=6)
    run.non_finite(scope="policy", metric="value_loss", kind="inf", count=2)
    run.early_stopped(update=3, epoch=2, kl_divergence=0.05, target=0.03, minibatches_skipped=12)
    run.curriculum_changed("level", before=3, after=4, env_id=[0, 2])
    run.curriculum_changed("food")
    run.envs_removed([1, 2])
    run.envs_removed(0)
    run.checkpoint_saved(Path("runs") / "a.pt", size_bytes=2048, duration_s=0.5)
    run.log("hello", severity="warn", env_id=4, took=1.5, where=None)
    run.gauge(loader_depth=3, loader_capacity=8, tokens_per_s=1e4)
    with run.phase("collect"):
        pass


def assert_everything(sink: Sink) -> None:
    """What `report_everything` reported, as the collector received it."""
    assert [event.env_id.array().tolist() for event in sink.events(EnvsRemoved)] == [[1, 2], [0]]
    (update,) = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert update.index == 3
    assert {name: column.first() for name, column in update.values.items()} == {
        KL.name: 0.01,
        "overwatch.policy.entropy": 0.5,
        "overwatch.custom.my_number": 7.0,
    }
    (envs,) = [event for event in sink.events(Measured) if event.scope is Scope.ENV]
    assert envs.keys["env_id"].array().tolist() == [0, 1, 2]
    assert envs.values["overwatch.env.reward"].array().tolist() == [1.0, 2.0, -1.5]
    assert envs.values["overwatch.env.metric"].array().tolist() == [1, 2, 3]
    assert envs.values["overwatch.env.step_time"].array().tolist() == [0.25] * 3
    assert envs.values["lane"].words() == [f"cuda:0@{socket.gethostname()}"] * 3, (
        "no GPU is here to be sure of"
    )
    (slots,) = [event for event in sink.events(Measured) if event.scope is Scope.SLOT]
    assert slots.keys["slot"].words() == ["a", "b"]
    assert slots.values["overwatch.slot.stage"].words() == ["blending", "pruned"]
    assert slots.values["blueprint"].words() == ["norm", None]
    assert slots.values["overwatch.slot.alpha"].array().tolist() == [0.5, 1.0]
    assert slots.values["overwatch.slot.gradient_health"].array().tolist() == [0.62, 0.04]
    assert_gauges(sink)
    assert_facts(sink)


def assert_gauges(sink: Sink) -> None:
    """The gauges of `report_everything`: what a row of the host knows, and a number of the run's own."""
    reported = {event.scope: event.values for event in sink.events(Measured)}
    assert {name: column.first() for name, column in reported[Scope.HOST].items()} == {
        "overwatch.host.loader.depth": 3.0,
        "overwatch.host.loader.limit": 8.0,
    }
    assert reported[Scope.RUN]["overwatch.custom.tokens_per_s"].first() == 1e4


def assert_facts(sink: Sink) -> None:
    """The facts of `report_everything`."""
    (episodes,) = sink.events(EpisodeEnded)
    assert episodes.episode_return.array().tolist() == [10.0, 11.0]
    assert episodes.length.array().tolist() == [100, 101]
    (actions,) = sink.events(ActionTaken)
    assert (actions.op.words(), actions.slot.words(), actions.step) == (["grow", "wait"], ["a", None], 5)
    (moved,) = sink.events(SeedStageChanged)
    assert (moved.before, moved.after, moved.fields) == (Stage.TRAINING, Stage.BLENDING, {"gain": "0.5"})
    (gate,) = sink.events(GateEvaluated)
    assert (gate.passed, gate.score, gate.checks_failed) == (False, 0.3, ("gain",))
    (crash,) = sink.events(EnvCrashed)
    assert (crash.env_id, crash.error, crash.step) == (2, "ValueError: boom", 6)
    (seen,) = sink.events(NonFiniteSeen)
    assert (seen.metric, seen.kind, seen.count) == ("overwatch.policy.value_loss", "inf", 2)
    (stopped,) = sink.events(EarlyStopped)
    assert (stopped.update, stopped.minibatches_skipped) == (3, 12)
    some, whole = sink.events(CurriculumChanged)
    assert (some.name, some.before, some.after, some.env_id.array().tolist()) == ("level", "3", "4", [0, 2])
    assert (whole.name, whole.before, whole.after, whole.env_id) == ("food", None, None, None)
    (saved,) = sink.events(CheckpointSaved)
    assert (saved.path, saved.update, saved.size_bytes, saved.duration_s) == ("runs/a.pt", 3, 2048, 0.5)
    (line,) = sink.events(LogLine)
    assert (line.message, line.severity, line.env_id) == ("hello", Severity.WARNING, 4)
    assert line.fields == {"took": "1.5", "where": "None"}
    (phase,) = sink.events(PhaseEnded)
    assert (phase.phase, phase.update) == ("collect", 3)
    assert phase.duration_s >= 0
    (finished,) = sink.events(RunFinished)
    assert (finished.outcome, finished.reason) == ("failed", "why")


def test_every_event_arrives_over_http(sink: Sink) -> None:
    """Every kind of call becomes its event, numbered without gaps, from one origin."""
    run = overwatch.sdk.start(
        endpoint=sink.endpoint,
        task="grow",
        algo="ppo",
        n_envs=3,
        rank=2,
        config={"lr": 3e-4, "net": {"api_token": "hush", "url": "http://me:pw@host/x"}},
        devices=["cuda:0"],
        slots=("a", "b"),
        embargo=5,
        blueprints={"norm": "No"},
        metric=MetricInfo(name="accuracy", higher_is_better=True),
        updates=10,
        resumed=4,
        modes={"amp": "bf16", "compile": True, "ddp": 2},
        sample=False,
    )
    report_everything(run)
    report = run.close(5.0, outcome="failed", reason="why")
    assert report == overwatch.sdk.Report(delivered=True, accepted=20, dropped={})
    assert_everything(sink)
    records = sink.records()
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert len({record.origin for record in records}) == 1
    origin = records[0].origin
    assert (origin.run_id, origin.rank, origin.task, origin.algo, origin.ours) == (
        run.run_id,
        2,
        "grow",
        "ppo",
        True,
    )
    (started,) = sink.events(RunStarted)
    assert started.config == {
        "lr": "0.0003",
        "net.api_token": "[redacted]",
        "net.url": "http://[redacted]@host/x",
    }
    assert (started.amp, started.compile, started.ddp, started.updates) == ("bf16", True, 2, 10)
    assert (started.slots, started.embargo, started.resumed) == (("a", "b"), 5, 4)
    assert started.node
    assert started.metric == MetricInfo(name="accuracy", higher_is_better=True)


def test_every_event_arrives_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same over gRPC, found through the environment."""
    with grpc_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.endpoint)
        run = overwatch.sdk.start(sample=False)
        report_everything(run)
        assert run.close(5.0, outcome="failed", reason="why").delivered
        assert_everything(sink)


def test_more_than_128_attributes_arrive(sink: Sink) -> None:
    """No number is cut off by the attribute limit of the OpenTelemetry SDK."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(kl_divergence=0.01, **{f"number_{index}": float(index) for index in range(180)})
    assert run.close(5.0).delivered
    assert max(attribute_count(body) for path, body in sink.bodies if path == "/v1/logs") > 180
    (update,) = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert len(update.values) == 181
    assert update.values[KL.name].first() == 0.01


def test_columns_tensors_and_lanes_arrive_in_turn(sink: Sink) -> None:
    """Every step arrives or is folded into a later one, whichever way it went."""
    torch = pytest.importorskip("torch")
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    for step in range(5):
        run.envs(step=step, reward=np.full(3, float(step)))
    run.envs(step=5, reward=torch.full((3,), 5.0))
    run.envs(step=6, reward=np.full(3, 6.0), lane="cuda:0")
    report = run.close(5.0)
    assert (report.delivered, report.refused, report.dropped) == (True, 0, {})
    reported = [event for event in sink.events(Measured) if event.scope is Scope.ENV]
    assert sum(1 if event.conflated is None else event.conflated.n for event in reported) == 7
    assert reported[-1].values["overwatch.env.reward"].array().tolist() == [6.0] * 3


def test_an_updater_takes_by_place_what_update_takes_by_name(sink: Sink) -> None:
    """Known, custom and odd names; ints, tensors and too many values: all that can be sent arrives."""
    torch = pytest.importorskip("torch")
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    report = run.updater("kl_divergence", "my_number", "a/b")
    report(0.01, 2.0, 3.0, update=1)
    report(0.02, 2, np.float32(3.0), update=2)
    report(0.03, 2.0, 3.0, 4.0, update=3)
    report(0.04, update=4)
    report(torch.tensor(0.0625), 2.0, 3.0, update=5)
    report(0.06, 2.0, 3.0, update=6)
    run.updater("kl_divergence", "kl_divergence", 7, [], "update")(0.07, 0.07, 1.0, 1.0, 1.0, update=7)  # type: ignore[arg-type]
    assert run.last_update == 7
    report_of = run.close(5.0)
    report(0.08, 2.0, 3.0, update=8)
    assert report_of.delivered
    assert (report_of.accepted, report_of.refused) == (7 + 1, 2)
    reported = [event for event in sink.events(Measured) if KL.name in event.values]
    assert sum(1 if event.conflated is None else event.conflated.n for event in reported) == 7
    assert reported[-1].values[KL.name].first() == 0.07


def test_a_nan_travels_as_it_is_and_as_a_fact(sink: Sink) -> None:
    """Critical rows yield one fact a metric with the envs concerned; undefined rows yield none."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(value_loss=math.nan, explained_variance=math.nan, unheard_of=math.inf)
    run.envs(env_id=np.arange(100), reward=np.where(np.arange(100) % 2 == 1, np.nan, 0.0))
    assert run.close(5.0).delivered
    (update,) = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert math.isnan(update.values["overwatch.policy.value_loss"].first())
    loss, reward = sink.events(NonFiniteSeen)
    assert (loss.metric, loss.kind, loss.env_ids) == ("overwatch.policy.value_loss", "nan", ())
    assert (reward.metric, reward.count, reward.env_ids) == (
        "overwatch.env.reward",
        50,
        tuple(range(1, 32, 2)),
    )


def test_metrics_and_spans_go_to_third_parties(sink: Sink) -> None:
    """Gauges under the catalogue's names without the non-finite ones, counters, a span a phase."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(kl_divergence=0.02, value_loss=math.nan)
    run.envs(step=1, reward=[1.0, 2.0])
    with run.phase("gae"):
        pass
    assert run.traceparent == ""
    run.update(kl_divergence=0.02, update=7)
    with run.phase("learn"):
        reported = run.traceparent
    assert run.close(5.0).delivered
    body = next(body for path, body in reversed(sink.bodies) if path == "/v1/metrics")
    message = ExportMetricsServiceRequest.FromString(body)
    found = {
        metric.name: metric
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found[KL.name].gauge.data_points[0].as_double == 0.02
    assert "overwatch.policy.value_loss" not in found
    assert found["overwatch.run.updates"].sum.data_points[0].as_double == 2
    assert found["overwatch.run.steps"].sum.data_points[0].as_double == 2
    assert found["overwatch.run.non_finite"].sum.data_points[0].as_int == 1
    spans = spans_of(sink)
    assert [span.name for span in spans] == ["gae", "rl.loop", "rl.train", "shutdown"]
    named = [(span.trace_id.hex(), span.span_id.hex()) for span in spans]
    assert [(ended.trace_id, ended.span_id) for ended in sink.events(PhaseEnded)] == named[::2]
    assert reported == "00-{}-{}-01".format(*named[3])


def test_every_signal_names_its_schema_and_version(sink: Sink) -> None:
    """Logs, metrics and spans, on the resource and on the scope; a run is an entity once."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False, task="ant", algo="ppo", run_id="r")
    with run.phase("collect"):
        pass
    run.update(update=1, kl_divergence=0.01)
    assert run.close(5.0).delivered
    kinds = {
        "/v1/logs": (ExportLogsServiceRequest, "resource_logs", "scope_logs"),
        "/v1/metrics": (ExportMetricsServiceRequest, "resource_metrics", "scope_metrics"),
        "/v1/traces": (ExportTraceServiceRequest, "resource_spans", "scope_spans"),
    }
    assert {path for path, _ in sink.bodies} == set(kinds)
    states = []
    for path, body in sink.bodies:
        kind, resources, scopes = kinds[path]
        for resource in getattr(kind.FromString(body), resources):
            assert resource.schema_url == wire.SCHEMA_URL
            for scope in getattr(resource, scopes):
                assert (scope.schema_url, scope.scope.name) == (wire.SCHEMA_URL, "overwatch")
                assert scope.scope.version == overwatch.__version__
                records = getattr(scope, "log_records", ())
                states += [one for one in records if one.event_name == wire.ENTITY_STATE]
    (state,) = states
    stated = {pair.key: pair.value for pair in state.attributes}
    assert stated["entity.type"].string_value == "overwatch.run"
    named, described = (
        {one.key: one.value.string_value for one in stated[key].kvlist_value.values}
        for key in ("entity.id", "entity.description")
    )
    assert named == {"rl.run.id": "r"}
    assert described == {"rl.environment.name": "ant", "rl.algorithm": "ppo"}
    assert "overwatch.seq" not in stated


@pytest.mark.parametrize("state", ["dead", "silent"])
def test_close_is_punctual_and_truthful_without_a_collector(state: str) -> None:
    """A dead port and a server that never answers: back in time, nothing claimed."""
    with silent_server() as silent:
        endpoint = silent if state == "silent" else f"http://127.0.0.1:{free_port()}"
        run = overwatch.sdk.start(endpoint=endpoint, sample=False)
        run.update(kl_divergence=0.01)
        began = time.monotonic()
        report = run.close(1.0)
        assert time.monotonic() - began < EXIT_S
    assert not report.delivered
    assert (report.accepted, report.kept, report.dropped) == (2, 2, {})
    assert run.close() is report


def test_records_wait_for_a_collector_that_is_away(sink: Sink) -> None:
    """A busy collector is tried again and in the end has everything, in order.

    Closing cuts a try that is under way; whether that one arrived nobody knows, so it may come again.
    """
    sink.status = lambda count: 503 if count <= 2 else 200
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(update=1, kl_divergence=0.01)
    sink.wait(lambda sink: sink.records())
    run.update(update=2, kl_divergence=0.02)
    assert run.close(5.0).delivered
    records = sink.records()
    received = list(dict.fromkeys(record.seq for record in records))
    assert received == list(range(1, len(received) + 1))


def test_a_refusal_is_counted_and_not_repeated(sink: Sink) -> None:
    """What the collector refuses for good is dropped under its reason; the next batch goes."""
    sink.status = lambda _: 400
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    sink.wait(lambda sink: sink.requests)
    report = run.close(5.0)
    assert report.dropped == {"refused_400": 1}
    assert report.accepted == 1


def test_a_partial_success_is_counted(sink: Sink) -> None:
    """Records that the collector did not keep are not called delivered."""
    sink.reply = partial_success(1)
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    report = run.close(5.0)
    assert not report.delivered
    assert report.dropped.get("rejected", 0) >= 1


class Hostile:
    """An argument with malice."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __len__(self) -> int:
        raise RuntimeError("no length")


def test_no_call_raises_whatever_it_is_given(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Every method with every kind of nonsense: nothing is raised, the account adds up, stated once each."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    nonsense: list[object] = [
        Hostile(),
        None,
        "\ud800",
        b"x",
        [],
        {},
        10**400,
        object(),
        [Hostile()],
        np.zeros((2, 2)),
    ]
    for bad in nonsense:
        run.update(update=bad, kl_divergence=bad, **{"\ud800": 1.0, "self": 2.0})
        run.envs(env_id=bad, step=bad, lane=bad, reward=bad)
        run.slots(env_id=bad, slot=bad, stage=bad, blueprint=bad, alpha=bad, age=bad)
        run.episodes(env_id=bad, episode_return=bad)
        run.actions(env_id=bad, op=bad, slot=bad)
        run.seed_stage_changed(env_id=bad, slot=bad, seed_id=bad, before=bad, after=bad, extra=bad)
        run.gate_evaluated(env_id=bad, slot=bad, seed_id=bad, gate=bad, passed=bad, checks_failed=bad)
        run.env_crashed(bad, bad, step=bad, traceback=bad)
        run.non_finite(scope=bad, metric=bad, count=bad, env_ids=bad)
        run.early_stopped(update=bad, epoch=bad, kl_divergence=bad, target=bad, minibatches_skipped=bad)
        run.curriculum_changed(bad, before=bad, after=bad, env_id=bad)
        run.envs_removed(bad)
        run.checkpoint_saved(bad, update=bad, size_bytes=bad, duration_s=bad)
        run.log(bad, severity=bad, subsystem=bad, env_id=bad, slot=bad, extra=bad)
        with run.phase(bad):
            pass
    run.log("still here")
    report = run.close(10.0)
    # A call each, the log line and the end; the one name that is text is announced too.
    assert report.accepted == 15 * len(nonsense) + 3
    assert set(report.dropped) == {"invalid"}
    assert report.refused > 0
    assert [event.message for event in sink.events(LogLine)][-1] == "still here"
    assert caplog.text.count("run.slots") == 1


def test_a_misspelt_name_is_sent_as_custom_and_asked_about(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """One "did you mean"; the number is kept under the custom prefix."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    for _ in range(3):
        run.update(kl_divergense=0.5)
    assert run.close(5.0).delivered
    assert caplog.text.count("did you mean 'kl_divergence'") == 1
    update = next(event for event in sink.events(Measured) if event.scope is Scope.POLICY)
    assert update.values["overwatch.custom.kl_divergense"].first() == 0.5


def test_custom_names_are_bounded(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """The 257th name is refused and counted; the rest arrives."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    run.update(**{f"n{index}": 1.0 for index in range(300)})
    report = run.close(5.0)
    assert (report.delivered, report.refused) == (True, 44)
    assert "256 custom names" in caplog.text


def test_a_run_as_a_context_reports_how_it_ended(sink: Sink) -> None:
    """An exception through the `with` is a failed run."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False)
    sink.wait(lambda sink: sink.events(RunStarted))
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError("x / 0")
    (finished,) = sink.events(RunFinished)
    assert (finished.outcome, finished.reason) == ("failed", "ZeroDivisionError: x / 0")


def test_the_environments_headers_and_compression_are_honoured(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OTEL_EXPORTER_OTLP_*` and `OTEL_SERVICE_NAME` work as for any OpenTelemetry program."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"{sink.endpoint}/v1/logs")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-trainer")
    run = overwatch.sdk.start(sample=False)
    run.log("hello")
    with run.phase("learn"):
        pass
    assert run.close(5.0).delivered
    assert sink.events(PhaseEnded)[0].trace_id is None
    assert all(h["x-token"] == "abc" and h["content-encoding"] == "gzip" for h in sink.headers)
    assert {path for path, _ in sink.bodies} == {"/v1/logs"}
    assert b"my-trainer" in sink.bodies[0][1]
    assert len(sink.events(LogLine)) == 1


def test_a_pause_of_the_loop_is_announced_when_it_begins(sink: Sink) -> None:
    """An evaluation, a checkpoint, any other name; steps of the loop are not, nor the same name each time."""
    with overwatch.sdk.start(task="t", endpoint=sink.endpoint, sample=False) as run:
        for name in ("collect", "eval", "eval", "update", "checkpoint", "my video"):
            with run.phase(name):
                pass

    assert [event.phase for event in sink.events(PhaseBegan)] == ["eval", "checkpoint", "my video"]
    assert len(sink.events(PhaseEnded)) == 6


def test_a_phase_is_measured_as_a_decorator_and_when_it_fails(sink: Sink) -> None:
    """Every call is one phase, nested phases are their own, an error passes through and is measured."""
    with overwatch.sdk.start(task="t", endpoint=sink.endpoint, sample=False) as run:

        @run.phase("update")
        def learn(scale: int) -> int:
            with run.phase("sync"):
                return 2 * scale

        assert [learn(1), learn(2)] == [2, 4]
        with pytest.raises(KeyError), run.phase("checkpoint"):
            raise KeyError("disk")
        assert run.flush(20.0)
    sink.wait(lambda sink: len(sink.events(PhaseEnded)) == 5)
    assert [event.phase for event in sink.events(PhaseEnded)] == ["sync", "update"] * 2 + ["checkpoint"]
