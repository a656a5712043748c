"""Numbers of the services beside a trainer."""

import math

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from overwatch.catalog import Scope
from overwatch.events import Measured, scalars
from overwatch.fold import Fold, next_tick
from overwatch.journal import Batch, Signal
from tests import fakes
from tests.fakes import START_NS


def test_a_service_that_measures_itself_is_no_update_of_the_policy() -> None:
    """Its numbers are kept, and the run is at the update that its trainer told."""
    told = Measured(at=START_NS, scope=Scope.LEARNER, values=scalars({"learner.policy_loss": 0.25}))
    state = fakes.folded([fakes.policy(START_NS, 7, entropy=0.5), told, told])

    assert (state.updates, state.update) == (1, 7)
    assert state.policy["learner.policy_loss"].value == 0.25


def _sums(**values: float) -> bytes:
    """What a trainer's own OpenTelemetry SDK says of its counters."""
    message = ExportMetricsServiceRequest()
    resource = message.resource_metrics.add()
    named = resource.resource.attributes.add()
    named.key, named.value.string_value = "rl.run.id", "foreign"
    scope = resource.scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name.replace("_", "."))
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.data_points.add(
            time_unix_nano=START_NS, start_time_unix_nano=START_NS - 1, as_double=value
        )
    return message.SerializeToString()


def test_a_foreign_trainer_counts_itself() -> None:
    """Its counters by the draft's names are the run's, where the fold has counted less."""
    body = _sums(rl_sample_episodes=41.0, rl_train_steps=7.0, rl_sample_samples=4096.0)
    batch = Batch(sequence=1, stamp=START_NS, signal=Signal.METRICS, body=body)
    frame = Fold().advance(next_tick(START_NS), [batch], [])
    (snapshot,) = frame.snapshots.values()

    counters = snapshot.counters
    assert (counters["episodes"], counters["updates"], counters["steps"]) == (41.0, 7.0, 4096.0)


def test_a_count_that_is_none_is_not_kept() -> None:
    """Neither what is not finite nor what is negative."""
    events = [
        Measured(at=START_NS, scope=Scope.RUN, values=scalars({"overwatch.run.episodes": value}))
        for value in (5.0, math.nan, math.inf, -1.0)
    ]

    assert fakes.folded(events).told_counts == {"episodes": 5.0}
