"""Services on the page: valid for the format's own checker, each series with its process."""

import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics

from overwatch.aggregator import Frame
from overwatch.catalog import Scope
from overwatch.catalog.learner import CHECKPOINT_DURATION
from overwatch.events import (
    Buckets,
    CheckpointSaved,
    Measured,
    Origin,
    Record,
    Sample,
    Tallied,
    TallySeries,
    scalars,
)
from overwatch.fold import Fold
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from tests.fakes import SECOND, START_NS
from tests.overwatch.serve.pages import OPEN_METRICS, page, samples
from tests.real.servers import need

HELD = Buckets(bounds=(0.5, 1.0), counts=(1, 2, 3))


def reported(*series: TallySeries, role: str = "rollouts", rank: int = 0) -> Record:
    """A record of what one process counts."""
    event = Tallied(at=START_NS, scope=Scope.ROLLOUTS, series=series)
    return Record(
        origin=Origin(run_id="run-1", role=role, rank=rank, epoch="e", ours=True), event=event, seq=1
    )


def counter(metric: str, total: float, **labels: str) -> TallySeries:
    """A counter."""
    return TallySeries(metric=metric, labels=labels, sum=total)


def frame_of(*records: Record) -> Frame:
    """The frame after these records."""
    batch = Batch(sequence=1, stamp=START_NS, signal=Signal.LOGS, body=request(records, {}))
    return Fold().advance(START_NS + SECOND // 10, [batch], [])


@pytest.fixture
def frame() -> Frame:
    """Two processes with everything that they may count, and names that no row knows."""
    gauges = Measured(
        at=START_NS, scope=Scope.ROLLOUTS,
        values=scalars({"overwatch.rollouts.queue.groups": 3.0, "overwatch.custom.my \x1bgauge": 4.0}),
    )  # fmt: skip
    return frame_of(
        reported(
            counter("overwatch.rollouts.refused", 4.0, env="a", reason="too old", length="256"),
            counter("overwatch.rollouts.accepted", 9.0, env='quo"te'),
            TallySeries(metric="overwatch.rollouts.wait_time", sum=4.5, count=6, buckets=HELD),
            TallySeries(metric="overwatch.rollouts.age", count=2),
            counter("overwatch.custom.mine", 2.0, why="x"),
            TallySeries(metric="overwatch.custom.mine_too", sum=-1.0, count=6, buckets=HELD),
        ),
        reported(
            counter("overwatch.rollouts.accepted", 5.0, env="a"),
            counter("overwatch.custom.odd", 1.0, **{"le": "1", "a.b": "2", "rank": "7", "a_b": "3"}),
            TallySeries(metric="overwatch.rollouts.accepted", sum=1.0, count=1),
            counter("overwatch.rollouts.wait_time", 1.0),
            rank=1,
        ),
        Record(origin=Origin(run_id="run-1", role="rollouts", epoch="e", ours=True), event=gauges, seq=2),
    )


def value(frame: Frame, name: str, rank: int = 0, /, **labels: str) -> float | None:
    """The value of one series of a rollouts service."""
    whole = {"rl_run_id": "run-1", "role": "rollouts", "rank": str(rank), **labels}
    return samples(frame).get((name, tuple(sorted(whole.items()))))


def test_counters_have_their_labels_and_their_process(frame: Frame) -> None:
    """Under the row's name with `_total`; two processes have a series each."""
    refused = value(frame, "overwatch_rollouts_refused_total", env="a", reason="too old", length="256")
    assert refused == 4.0
    assert value(frame, "overwatch_rollouts_accepted_total", 1, env="a") == 5.0
    assert value(frame, "overwatch_rollouts_accepted_total", env='quo"te') == 9.0


def test_histograms_have_buckets_a_sum_and_a_count(frame: Frame) -> None:
    """Cumulated, with the row's unit in the name; without buckets there is how many there were."""
    name = "overwatch_rollouts_wait_time_seconds"
    assert [value(frame, f"{name}_bucket", le=end) for end in ("0.5", "1.0", "+Inf")] == [1.0, 3.0, 6.0]
    assert (value(frame, f"{name}_sum"), value(frame, f"{name}_count")) == (4.5, 6.0)
    assert value(frame, "overwatch_rollouts_age_bucket", le="+Inf") == 2.0
    assert value(frame, "overwatch_rollouts_age_count") is None, "a count needs a sum in OpenMetrics"


def test_what_no_row_knows_is_in_families_by_name(frame: Frame) -> None:
    """Labels of the page itself keep their meaning, and no two samples have the same labels."""
    assert value(frame, "overwatch_service_counted_total", name="mine", why="x") == 2.0
    assert value(frame, "overwatch_service_custom_values_bucket", name="mine_too", le="+Inf") == 6.0
    odd = {"name": "odd", "label_le": "1", "label_rank": "7", "a_b": "3"}
    assert value(frame, "overwatch_service_counted_total", 1, **odd) == 1.0
    assert value(frame, "overwatch_service_counted_total", 1, name="overwatch.rollouts.wait_time") == 1.0
    assert value(frame, "overwatch_rollouts_queue_groups") == 3.0


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_the_checkers_report_nothing(frame: Frame, accept: str) -> None:
    """The real linter on the plain page, Prometheus' own parser on OpenMetrics."""
    text = page(frame, accept)
    if accept:
        assert {family.name for family in open_metrics(text)} >= {"overwatch_rollouts_wait_time_seconds"}
        return
    need("promtool")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_row_with_other_names_has_its_series_under_each() -> None:
    """Dashboards of the learner's first design find both names of the wait for a sample and of the queue."""
    learner = Origin(run_id="run-1", role="learner", epoch="e", ours=True)
    waited = Tallied(
        at=START_NS,
        scope=Scope.LEARNER,
        series=(TallySeries(metric="learner.sample_latency", sum=4.5, count=6, buckets=HELD),),
    )
    queued = Measured(at=START_NS, scope=Scope.LEARNER, values=scalars({"learner.replay_queue_depth": 3.0}))
    found = samples(
        frame_of(Record(origin=learner, event=waited, seq=1), Record(origin=learner, event=queued, seq=2))
    )
    owner = (("rank", "0"), ("rl_run_id", "run-1"), ("role", "learner"))

    for name in ("learner_sample_latency_seconds", "replay_sample_latency_seconds"):
        assert found[f"{name}_count", owner] == 6.0
        assert found[f"{name}_bucket", (("le", "1.0"), *owner)] == 3.0
    for name in ("learner_replay_queue_depth", "prefetch_queue_size"):
        assert found[name, owner] == 3.0


def test_a_histogram_has_exemplars_for_who_asks_for_open_metrics() -> None:
    """A point beside its bucket opens the trace of that sample, under each name of the row."""
    learner = Origin(run_id="run-1", role="learner", epoch="e", ours=True)
    one = Sample(bucket=1, value=0.7, at=START_NS, trace_id="ab" * 16, span_id="cd" * 8)
    beyond = Sample(bucket=9, value=7.0, at=START_NS, trace_id="ab" * 16, span_id="cd" * 8)
    series = TallySeries(
        metric="learner.sample_latency", sum=4.5, count=6, buckets=HELD, samples=(one, beyond)
    )
    waited = Tallied(at=START_NS, scope=Scope.LEARNER, series=(series,))
    frame = frame_of(Record(origin=learner, event=waited, seq=1))
    found = {
        (sample.name, sample.labels["le"]): sample.exemplar
        for family in open_metrics(page(frame, OPEN_METRICS))
        for sample in family.samples
        if sample.exemplar is not None
    }

    assert set(found) == {
        (f"{name}_bucket", "1.0")
        for name in ("learner_sample_latency_seconds", "replay_sample_latency_seconds")
    }
    for exemplar in found.values():
        assert exemplar.labels == {"trace_id": "ab" * 16, "span_id": "cd" * 8}
        assert exemplar.value == 0.7


def test_a_checkpoint_is_an_exemplar_of_how_long_checkpoints_take() -> None:
    """Its event names the span of its phase."""
    learner = Origin(run_id="run-1", role="learner", epoch="e", ours=True)
    held = Buckets(bounds=CHECKPOINT_DURATION.buckets, counts=(0, 0, 0, 1, *[0] * 9))
    counted = TallySeries(metric="learner.checkpoint_duration", sum=0.02, count=1, buckets=held)
    events = (
        Tallied(at=START_NS, scope=Scope.LEARNER, series=(counted,)),
        CheckpointSaved(at=START_NS, path="p", duration_s=0.02, trace_id="ab" * 16, span_id="cd" * 8),
    )
    frame = frame_of(*(Record(origin=learner, event=event, seq=n) for n, event in enumerate(events, 1)))
    (found,) = (
        sample
        for family in open_metrics(page(frame, OPEN_METRICS))
        for sample in family.samples
        if sample.exemplar is not None
    )

    assert (found.name, found.labels["le"]) == ("learner_checkpoint_duration_seconds_bucket", "0.03")
