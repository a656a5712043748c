"""Numbers of the services beside a trainer."""

import math

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from overwatch.catalog import Scope
from overwatch.events import Buckets, Event, Measured, Origin, Record, Tallied, TallySeries, scalars
from overwatch.fold import Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.state import RunState, apply, dump, load, new_run
from overwatch.state.services import LIVES, MAX_TALLIES, Amount
from tests import fakes
from tests.fakes import START_NS


def test_a_service_that_measures_itself_is_no_update_of_the_policy() -> None:
    """Its numbers are kept, and the run is at the update that its trainer sent."""
    reported = Measured(at=START_NS, scope=Scope.LEARNER, values=scalars({"learner.policy_loss": 0.25}))
    state = fakes.folded([fakes.policy(START_NS, 7, entropy=0.5), reported, reported])

    assert (state.updates, state.update) == (1, 7)
    assert state.services.processes["trainer/0"].gauges["learner.policy_loss"].value == 0.25


LOSS = "learner.policy_loss"
SAMPLES = "learner.samples"


def origin(role: str = "learner", rank: int = 0, epoch: str = "e") -> Origin:
    """One process of a service."""
    return Origin(run_id="run-1", role=role, rank=rank, epoch=epoch, ours=True)


def counted(total: float, at: int = START_NS, name: str = SAMPLES, **labels: str) -> Tallied:
    """A counter so far."""
    return Tallied(
        at=at, scope=Scope.LEARNER, series=(TallySeries(metric=name, labels=labels, sum=float(total)),)
    )


def folded(*reported: tuple[Origin, Event]) -> RunState:
    """The state after these events of several processes."""
    state = new_run(Record(origin=reported[0][0], event=reported[0][1]))
    for owner, event in reported:
        apply(state, Record(origin=owner, event=event), event.at + 1)
    return state


def amounts(state: RunState, name: str = SAMPLES) -> dict[str, Amount]:
    """What each process counted, by role and rank, of the first label set."""
    return {
        key: next(iter(process.tallies[name].values())).whole()
        for key, process in state.services.processes.items()
        if name in process.tallies
    }


def test_two_processes_of_a_service_keep_their_own_gauges() -> None:
    """The value of one is not the other's, whatever order they report in."""
    reported = [Measured(at=START_NS + n, scope=Scope.LEARNER, values=scalars({LOSS: n})) for n in (1, 2)]
    state = folded((origin(rank=0), reported[0]), (origin(rank=1), reported[1]))

    kept = {key: process.gauges[LOSS].value for key, process in state.services.processes.items()}
    assert kept == {"learner/0": 1.0, "learner/1": 2.0}


def test_two_processes_count_each_for_itself() -> None:
    """Their totals do not interleave, and both are there."""
    state = folded(
        (origin(rank=0), counted(5)), (origin(rank=1), counted(100)), (origin(rank=0), counted(6)),
        (origin("actor"), counted(1)),
    )  # fmt: skip

    kept = {key: amount.sum for key, amount in amounts(state).items()}
    assert kept == {"learner/0": 6.0, "learner/1": 100.0, "actor/0": 1.0}


def test_a_counter_goes_on_over_the_lives_of_its_process() -> None:
    """A process that began again counts from 0, and late records of its earlier life change nothing."""
    state = folded(
        (origin(epoch="a"), counted(5)),
        (origin(epoch="b"), counted(2, START_NS + 10)),
        (origin(epoch="a"), counted(7, START_NS + 5)),
        (origin(epoch="a"), counted(6, START_NS + 3)),
        (origin(epoch="b"), counted(3, START_NS + 20)),
    )

    assert amounts(state)["learner/0"].sum == 10.0


def test_many_lives_are_added_up_and_stay_bounded() -> None:
    """A process that was killed 300 times counts what all its lives counted; a late record adds nothing."""
    lives = [(origin(epoch=f"e{n}"), counted(2, START_NS + n * 10)) for n in range(300)]
    state = folded(*lives, (origin(epoch="e3"), counted(2, START_NS + 35)))

    (tally,) = state.services.processes["learner/0"].tallies[SAMPLES].values()
    assert tally.whole().sum == 600.0
    assert len(tally.lives) == LIVES


def test_a_histogram_keeps_its_buckets_over_lives() -> None:
    """Of the same bounds counts add up; of others a bucket's values lie at its end."""

    def seen(bounds: tuple[float, ...], counts: tuple[int, ...], total: float) -> Tallied:
        held = Buckets(bounds=bounds, counts=counts)
        one = TallySeries(metric="learner.sample_latency", sum=total, count=sum(counts), buckets=held)
        return Tallied(at=START_NS, scope=Scope.LEARNER, series=(one,))

    state = folded(
        (origin(epoch="a"), seen((1.0, 2.0), (1, 2, 3), 10.0)),
        (origin(epoch="b"), seen((1.0, 2.0), (1, 0, 0), 0.5)),
        (origin(epoch="c"), seen((0.5, 1.5, 9.0), (1, 1, 1, 1), 20.0)),
    )

    whole = amounts(state, "learner.sample_latency")["learner/0"]
    assert whole == Amount(sum=30.5, count=11, buckets=Buckets(bounds=(1.0, 2.0), counts=(3, 3, 5)))


def test_a_policy_is_what_a_trainer_or_a_learner_sends() -> None:
    """Numbers of a policy from another role are kept with that process, and move no update."""
    stated = fakes.policy(START_NS + 1, 9, entropy=0.9)
    state = folded((origin("trainer"), fakes.policy(START_NS, 7, entropy=0.5)), (origin("rollouts"), stated))

    assert (state.updates, state.update) == (1, 7)
    assert state.policy["overwatch.policy.entropy"].value == 0.5
    assert state.services.processes["rollouts/0"].gauges["overwatch.policy.entropy"].value == 0.9
    assert folded((origin("learner"), stated)).update == 9


def test_series_beyond_a_cap_are_counted() -> None:
    """A name has at most its label sets and `other`, a run so many series; none that is known is harmed."""
    many = [(origin(), counted(n, START_NS + n, status=str(n))) for n in range(200)]
    state = folded(*many)
    assert len(state.services.processes["learner/0"].tallies[SAMPLES]) == 65
    assert state.overflow.counts == {"series": 135}

    names = [(origin(rank=n % 130), counted(1, name=f"n{n}")) for n in range(MAX_TALLIES + 5)]
    full = folded(*names)
    assert full.services.size == MAX_TALLIES
    assert full.overflow.counts == {"series": 5}


def test_services_are_part_of_a_checkpoint() -> None:
    """A state that was saved goes on as the one that was not."""
    reported: list[tuple[Origin, Event]] = [
        (origin(epoch="a"), counted(5, status="ok")), (origin(epoch="b"), counted(4, status="ok")),
        (origin(), Measured(at=START_NS, scope=Scope.LEARNER, values=scalars({LOSS: 1.0}))),
    ]  # fmt: skip
    state = folded(*reported)

    again = load(dump(state))
    assert again.services == state.services
    assert dump(again) == dump(state)


def _sums(**values: float) -> bytes:
    """What a trainer's own OpenTelemetry SDK sends of its counters."""
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

    assert fakes.folded(events).reported_counts == {"episodes": 5.0}
