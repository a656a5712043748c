"""Every row of the catalogue goes the whole way: emitted, sent, folded, shown, scraped, documented.

A row is emitted as its producer emits it: by a real run of the SDK through a real exporter process, by the
sampler's records, by a service's OTLP metrics, or by what it counts. Each has a value of its own, so one that
is mixed up with another is found. Ways that no row goes yet are listed by name, and a listed one that is gone
fails too.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from msgspec import structs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric
from prometheus_client.parser import text_string_to_metric_families

import overwatch.sdk
from overwatch.catalog import ROWS, Kind, Metric, Scope, of_scope, prometheus_name
from overwatch.catalog.rewards import ROWS as GROWTH
from overwatch.catalog.tallies import SERVICES, is_tally
from overwatch.events import Column, EnvRolledBack, Measured, Origin, Record, Tallied
from overwatch.fold import Fold, Frame, next_tick
from overwatch.generate import FILES
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals
from overwatch.serve.exposition import page as rendered
from overwatch.serve.prometheus import RunPage
from overwatch.snapshot import Snapshot, View
from overwatch.state.env_tables import FURTHER
from tests.overwatch.sdk.sink import Sink, http_sink

ROOT: Final = Path(__file__).parents[2]
RUN: Final = "wired"
PATIENCE_S: Final = 60.0
"""A machine with many tests on it takes its time."""
LANE: Final = "GPU-wired"

NOT_SCRAPED: Final = {
    "overwatch.env.reward", "overwatch.env.return", "overwatch.env.metric", "overwatch.env.rent",
    "overwatch.env.step_time", "overwatch.slot.alpha", "overwatch.slot.age", "overwatch.slot.gradient_health",
    "overwatch.slot.stage", "overwatch.gpu.throttle",
    *(f"overwatch.env.{name}" for name in FURTHER if name != "growth_ratio"), "overwatch.env.growth",
    *(f"overwatch.slot.{name}" for name in ("contribution", "interaction", "boost", "shapley")),
}  # fmt: skip
"""Series for each env and slot would be without end, words are no numbers: these are counted or ranked."""

NOT_SENT: Final = {"overwatch.run.phase.duration"}
"""A distribution that follows from facts."""

COUNTED: Final = {
    "updates": 1, "episodes": 1, "steps": 1, "non_finite": 2, "crashes": 1, "gpu_idle": 0, "rollbacks": 1,
}  # fmt: skip
"""What the fold itself counts of what `_report` emits."""


def value_of(row: Metric) -> float:
    """A number that no other row of the same place has."""
    place = of_scope(row.scope).index(row) + 1
    return place / 256 if row.unit == "1" else float(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """What became of everything that was emitted."""

    reported: Mapping[str, float]
    """First value of each name, as it came off the wire."""
    snapshot: Snapshot
    scraped: Mapping[str, float]
    """Newest sample of each Prometheus name."""


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Wired:
    """One run that emits every row once."""
    with pytest.MonkeyPatch.context() as patch, http_sink() as sink:
        folder = tmp_path_factory.mktemp("run")
        for name in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
            patch.setenv(name, str(folder))
        _report(sink)
        bodies = [(Signal.LOGS, body) for path, body in sink.bodies if path == "/v1/logs"]
    bodies += [(Signal.LOGS, _sampled()), (Signal.METRICS, _services())]
    reported: dict[str, float] = {}
    for signal, body in bodies:
        decoded = settle(decode(signal, body), Totals())
        assert not decoded.problems
        for record in decoded.records:
            if isinstance(record.event, Measured):
                reported |= {name: c.first() for name, c in record.event.values.items() if len(c)}
            if isinstance(record.event, Tallied):
                reported |= {one.metric: one.sum for one in record.event.series if one.sum is not None}
    fold, now = Fold(), time.time_ns()
    batches = [
        Batch(sequence=n, stamp=now + n, signal=signal, body=body)
        for n, (signal, body) in enumerate(bodies, start=1)
    ]
    frame = fold.advance(next_tick(now + len(batches)), batches, [(RUN, View(env_id=0))])
    snapshot = frame.snapshots[RUN, View(env_id=0)]
    return Wired(reported=reported, snapshot=snapshot, scraped=_scrape(_living(frame)))


def _living(frame: Frame) -> Frame:
    """The frame with runs that did not end: of one that did most values are not on the page."""
    living = {
        key: structs.replace(shot, link=structs.replace(shot.link, state="live"))
        for key, shot in frame.snapshots.items()
    }
    return replace(frame, snapshots=living)


def _scrape(frame: Frame) -> dict[str, float]:
    """Newest sample of each name on the page of a frame."""
    page = rendered(RunPage().families(frame))[0].decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def _report(sink: Sink) -> None:
    """Everything that a trainer emits."""
    run = overwatch.sdk.start(run_id=RUN, n_envs=1, slots=("a",), endpoint=sink.endpoint, sample=False)
    run.update(update=1, **{row.short: value_of(row) for row in of_scope(Scope.POLICY)})
    gauges = [row for row in of_scope(Scope.ENV) if row.kind is Kind.GAUGE]
    run.envs(env_id=[0], step=1, **{row.short: [value_of(row)] for row in gauges})
    slot = {row.short: [value_of(row)] for row in of_scope(Scope.SLOT) if row.kind is Kind.GAUGE}
    run.slots(env_id=[0], slot=["a"], stage=["training"], step=1, **slot)
    run.env_crashed(0, "boom")
    run.fact(EnvRolledBack(at=time.time_ns(), env_id=0, reason="nan"))
    run.non_finite(scope="env", metric="reward", kind="nan", count=2)
    run.episodes(env_id=[0], episode_return=[value_of(_row("overwatch.env.return"))])
    run.gauge(**{row.short: value_of(row) for row in of_scope(Scope.HOST)})
    assert run.close(PATIENCE_S).delivered


def _sampled() -> bytes:
    """What the exporter's sampler and its own count of losses emit."""
    at, lane = time.time_ns(), {"gpu_id": Column.of_labels([LANE])}
    gauges = {
        row.name: Column.scalar(value_of(row)) for row in of_scope(Scope.GPU) if row.kind is not Kind.STATE
    }
    words = {row.name: Column.of_labels(["thermal"]) for row in of_scope(Scope.GPU) if row.kind is Kind.STATE}
    dropped = _row("overwatch.sdk.dropped")
    events = [
        Measured(at=at, scope=Scope.GPU, keys=lane, values=gauges | words),
        Measured(at=at, scope=Scope.TOWER, values={dropped.name: Column.scalar(value_of(dropped))}),
    ]
    origin = Origin(run_id=RUN, role="sampler", epoch="s", ours=True)
    return request([Record(origin=origin, event=event, seq=n) for n, event in enumerate(events, 1)], {})


def _services() -> bytes:
    """What a learner and a rollouts service emit, as OTLP metrics of anybody's SDK."""
    message = ExportMetricsServiceRequest()
    resource = message.resource_metrics.add()
    named = resource.resource.attributes.add()
    named.key, named.value.string_value = "rl.run.id", RUN
    scope = resource.scope_metrics.add()
    for row in (row for scope_ in SERVICES for row in of_scope(scope_)):
        metric = scope.metrics.add(name=row.name, unit=row.unit)
        if row.kind is Kind.COUNTER:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        if row.kind is Kind.HISTOGRAM:
            _spread(metric, row)
            continue
        points = metric.sum.data_points if row.kind is Kind.COUNTER else metric.gauge.data_points
        points.add(time_unix_nano=time.time_ns(), start_time_unix_nano=1, as_double=value_of(row))
    return message.SerializeToString()


def _spread(metric: OtlpMetric, row: Metric) -> None:
    """One value of a distribution."""
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    metric.histogram.data_points.add(
        time_unix_nano=time.time_ns(), start_time_unix_nano=1, count=1, sum=value_of(row),
        bucket_counts=[1] + [0] * len(row.buckets), explicit_bounds=row.buckets,
    )  # fmt: skip


def _row(name: str) -> Metric:
    return next(row for row in ROWS if row.name == name)


def _shown(snapshot: Snapshot, row: Metric) -> object:
    """What a view knows of a row."""
    if row.kind is Kind.COUNTER and row.scope in (Scope.RUN, Scope.ENV, Scope.TOWER):
        return snapshot.counters[row.short]
    if is_tally(row):
        return next(one.total for one in snapshot.tallies if one.name == row.name)
    match row.scope:
        case Scope.POLICY:
            return snapshot.policy[row.short].value
        case Scope.LEARNER | Scope.ACTOR | Scope.REPLAY | Scope.ORCHESTRATOR | Scope.ROLLOUTS if is_tally(
            row
        ):
            return next(one.total for one in snapshot.tallies if one.name == row.name)
        case Scope.LEARNER | Scope.ACTOR | Scope.REPLAY | Scope.ORCHESTRATOR | Scope.ROLLOUTS:
            return snapshot.services[row.name].value
        case Scope.ENV if row.short in FURTHER:
            assert snapshot.detail is not None
            return snapshot.detail.numbers[row.short]
        case Scope.SLOT if row.short in ("contribution", "interaction", "boost", "shapley"):
            assert snapshot.detail is not None
            return snapshot.detail.slots["a"][row.short]
        case Scope.ENV:
            (env,) = snapshot.envs
            return getattr(
                env, {"return": "episode_return", "step_time": "step_time_s"}.get(row.short, row.short)
            )
        case Scope.SLOT:
            return getattr(snapshot.envs[0].slots["a"], row.short)
        case Scope.GPU:
            return getattr(snapshot.system.gpus[0], row.short)
        case Scope.HOST:
            return getattr(snapshot.system.host, row.short)
        case Scope.TOWER:
            return snapshot.link.data_age_s
        case Scope.RUN:
            raise AssertionError(f"no way to look at {row.name}; add it here")


def _expected(row: Metric) -> object:
    """What should be seen; `None` where any number will do."""
    if row.kind is Kind.STATE:
        return {"stage": "training", "throttle": ("thermal",)}[row.short]
    if row.name == "overwatch.run.data_age":
        return None
    return COUNTED.get(row.short, value_of(row)) if row.scope in (Scope.RUN, Scope.ENV) else value_of(row)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in NOT_SENT], ids=lambda row: row.name)
def test_a_row_goes_the_whole_way(wired: Wired, row: Metric) -> None:
    """Its value is what was sent on the wire, in the snapshot and in the text that is scraped."""
    expected = _expected(row)
    is_counted = row.short in COUNTED or row.name == "overwatch.run.data_age"

    if not is_counted and row.kind is not Kind.STATE:
        assert wired.reported[row.name] == pytest.approx(expected, rel=1e-6)
    shown = _shown(wired.snapshot, row)
    assert shown is not None
    if expected is not None:
        assert shown == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)
    if row.name not in NOT_SCRAPED:
        name = prometheus_name(row) + ("_sum" if row.kind is Kind.HISTOGRAM else "")
        assert wired.scraped[name] == pytest.approx(shown, rel=1e-6)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_documented(row: Metric) -> None:
    """The page of the catalogue has its name and its question."""
    page = (ROOT / "docs/catalog.md").read_text(encoding="utf-8")

    assert f"`{row.name}`" in page
    assert row.asks in page


@pytest.fixture(scope="module")
def registry() -> str:
    """The generated files of semantic conventions."""
    return "".join(FILES[f"otel/registry/{name}.yaml"]() for name in ("metrics", "attributes"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_a_semantic_convention(registry: str, row: Metric) -> None:
    """The registry has its name: a metric of ours, one that is imported, or an attribute of words."""
    assert any(f"{key} {row.name}\n" in registry for key in ("name:", "-", "key:"))


def test_what_goes_no_way_is_listed_by_name(wired: Wired) -> None:
    """A row that is on a list is one, and is not wired after all."""
    names = {row.name for row in ROWS}

    assert names >= NOT_SCRAPED
    assert not {prometheus_name(_row(name)) for name in NOT_SCRAPED} & set(wired.scraped)
    assert {row.name for row in ROWS if row.kind is Kind.HISTOGRAM} > NOT_SENT
    assert not NOT_SENT & set(wired.reported)


def test_a_row_that_was_not_emitted_is_absent() -> None:
    """No number stands in for one that nobody emitted."""
    fold, now = Fold(), time.time_ns()
    emitted = {"overwatch.policy.entropy": Column.scalar(0.5)}
    only = Record(
        origin=Origin(run_id="bare", epoch="b", ours=True),
        event=Measured(at=now, scope=Scope.POLICY, values=emitted, index=1),
        seq=1,
    )
    batch = Batch(sequence=1, stamp=now, signal=Signal.LOGS, body=request([only], {}))
    frame = fold.advance(next_tick(now), [batch], [])
    (snapshot,) = frame.snapshots.values()

    shorts = {row.short for row in of_scope(Scope.POLICY) if row not in GROWTH}
    assert set(snapshot.policy) == shorts
    for short in shorts - {"entropy"}:
        reading = snapshot.policy[short]
        assert (reading.value, reading.status, reading.text) == (None, "absent", "–")
    reported = {prometheus_name(row) for row in of_scope(Scope.POLICY) if row.short == "entropy"}
    assert {prometheus_name(row) for row in of_scope(Scope.POLICY)} & set(_scrape(frame)) == reported
