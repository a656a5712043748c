"""Batches with fewer numbers: facts to the byte, silence as it was, a fold that ends where it would have."""

import msgspec
import numpy as np
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch.catalog import Scope
from overwatch.diagnose.liveness import judge_link
from overwatch.events import Conflated, EnvsRemoved, Event, Measured, Origin, Tallied, TallySeries
from overwatch.fold import Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.thin import Loss, RetentionLevel, Thinning, thin
from overwatch.simulate import Script, Settings, Teller, parse_fault
from overwatch.state.run import RunState
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.otlp.test_settle import metric, put

OTHER = Origin(run_id="run-1", epoch="e2", rank=1, ours=True)
MINUTE = Thinning(floor=RetentionLevel.MINUTE)


def batch(number: int, second: float, events: list[Event], origin: Origin = fakes.ORIGIN) -> Batch:
    """Received 5 ms after a second."""
    body = request(fakes.records(events, origin, first_seq=1000 * number), {})
    stamp = START_NS + round(second * SECOND) + 5_000_000
    return Batch(sequence=number, stamp=stamp, signal=Signal.LOGS, body=body)


def thinned(batches: list[Batch], thinning: Thinning = MINUTE) -> list[Batch]:
    """What is left."""
    return list(thin(batches, thinning, {}))


def logs(batches: list[Batch], *, numbers: bool) -> list[bytes]:
    """Log records as bytes: measurements, or everything else."""
    return [
        log.SerializeToString(deterministic=True)
        for one in batches
        for resource in ExportLogsServiceRequest.FromString(one.body).resource_logs
        for scope in resource.scope_logs
        for log in scope.log_records
        if (log.event_name == "overwatch.measured") == numbers
    ]


def simulated(seconds: int, *faults: str) -> list[Batch]:
    """A scripted run as a collector would have received it."""
    planned = tuple(parse_fault(fault) for fault in faults)
    script = Script(Settings(gpus=2, envs=4, slots=2, seconds=seconds, faults=planned), START_NS)
    reported = Teller("run-1", "epoch").report(script.moments())
    return [
        Batch(sequence=n, stamp=each.at + 5_000_000, signal=Signal.LOGS, body=each.body)
        for n, each in enumerate(reported, 1)
    ]


def test_facts_keep_their_bytes_and_their_order() -> None:
    """Whatever is no measurement is there as it was, for every grain but the last."""
    whole = simulated(90, "crash-storm@20", "cull-storm@40")
    for retention in (RetentionLevel.SECOND, RetentionLevel.MINUTE, RetentionLevel.SPARSE):
        left = thinned(whole, Thinning(floor=retention))
        assert logs(left, numbers=False) == logs(whole, numbers=False)
        assert len(logs(left, numbers=True)) < len(logs(whole, numbers=True)) / 2


def test_a_fold_ends_where_it_would_have() -> None:
    """Values, stages, episodes, updates and steps are the same after the last batch."""
    whole = simulated(90, "cull-storm@40")
    ends = []
    for batches in (whole, thinned(whole)):
        fold = Fold()
        for one in batches:
            fold.skip(next_tick(one.stamp), [one])
        ends.append(next(iter(fold._runs.values())).state)
    full, left = ends
    names = {
        name
        for one in whole
        for record in decode(one.signal, one.body).records
        if isinstance(record.event, Measured)
        for name in record.event.values
    }

    assert _summary(left, names) == _summary(full, names)


def test_updates_without_a_number_are_counted_beside_one_that_came_in_two_parts() -> None:
    """Three updates: the second came in two records, of which the later adds none."""
    part = msgspec.structs.replace(
        fakes.policy(START_NS + 3 * SECOND, 0, entropy=0.5), conflated=Conflated(n=1, first=None, updates=0)
    )
    events = [
        fakes.policy(START_NS + SECOND, None, entropy=0.5),
        fakes.policy(START_NS + 2 * SECOND, 0, entropy=0.5, kl_divergence=0.01),
        part,
        fakes.policy(START_NS + 4 * SECOND, None, entropy=0.5, kl_divergence=0.01),
    ]
    whole = [batch(n, n, [event]) for n, event in enumerate(events, 1)]
    counts = []
    for batches in (whole, thinned(whole)):
        fold = Fold()
        for one in batches:
            fold.skip(next_tick(one.stamp), [one])
        counts.append(next(iter(fold._runs.values())).state.updates)

    assert counts == [3, 3]


def _summary(state: RunState, names: set[str]) -> dict[str, object]:
    """What is known now of these names; envs by id, since the first to report has the first row."""
    envs = state.envs
    order = np.argsort(envs.ids[: envs.n])
    reported = {name: series.value for name, series in state.policy.items() if name in names}
    return {
        "update": (state.update, state.updates, state.episodes, state.crashes),
        "stage": envs.stage[: envs.n][order].tolist(),
        "returns": envs.mean_return()[order].tolist(),
        "envs": {name: repr(values[: envs.n][order].tolist()) for name, values in envs.values.items()},
        "policy": reported,
        "lanes": {lane: {n: g.value for n, g in reported.items()} for lane, reported in state.lanes.items()},
        "life": (state.started, state.finished, state.steps),
    }


def test_what_was_counted_is_the_same_after_thinning() -> None:
    """Of tallies the last of a period stays, with the newest of each series that came in it, life by life."""
    lives = [Origin(run_id="run-1", role="rollouts", epoch=epoch, ours=True) for epoch in "ab"]
    whole = []
    for n in range(1, 240):
        labels = {"env": "abc"[n % 3]}
        counted = TallySeries(metric="overwatch.rollouts.accepted", labels=labels, sum=float(n % 120))
        reported = Tallied(at=START_NS + n * SECOND, scope=Scope.ROLLOUTS, series=(counted,))
        whole.append(batch(n, n, [reported], lives[n >= 120]))
    left = thinned(whole)
    assert sum(len(logs([one], numbers=False)) for one in left) < 12

    kept = []
    for batches in (whole, left):
        fold = Fold()
        for one in batches:
            fold.skip(next_tick(one.stamp), [one])
        (run,) = fold._runs.values()
        (service,) = run.state.services.processes.values()
        found = service.tallies["overwatch.rollouts.accepted"]
        kept.append({key: tally.whole() for key, tally in found.items()})
    assert kept[0] == kept[1]
    assert {amount.sum for amount in kept[0].values()} == {117.0 + 117, 118.0 + 118, 119.0 + 119}


def test_what_a_foreign_service_counted_before_a_restart_is_left() -> None:
    """Of one producer's totals the last before it began again stays, beside the last after it."""
    whole = []
    for n in range(1, 40):
        message = ExportMetricsServiceRequest()
        reported = metric(message, "learner.samples", service__instance__id="i").sum
        reported.aggregation_temporality, reported.is_monotonic = 2, True
        put(reported, 1 if n < 20 else 20, n + 1, as_double=float(n % 20))
        stamp = START_NS + (n + 2) * SECOND
        body = message.SerializeToString()
        whole.append(Batch(sequence=n, stamp=stamp, signal=Signal.METRICS, body=body))
    left = thinned(whole)
    assert len(left) < 6

    for batches in (whole, left):
        fold = Fold()
        for one in batches:
            fold.skip(next_tick(one.stamp), [one])
        (run,) = fold._runs.values()
        (service,) = run.state.services.processes.values()
        (tally,) = service.tallies["learner.samples"].values()
        assert tally.whole().sum == 19.0 + 19.0


def test_what_is_kept_is_kept_whole() -> None:
    """Between two stamps every batch is as it was; before and after it is not."""
    whole = simulated(90)
    span = whole[400].stamp, whole[500].stamp
    left = thinned(whole, Thinning(floor=RetentionLevel.MINUTE, kept={"run-1": [span]}))

    assert [one for one in left if span[0] <= one.stamp <= span[1]] == whole[400:501]
    assert len(left) < 250


def test_what_the_run_reports_of_itself_is_left_longer() -> None:
    """Before what matters its own numbers stay one a second, those of envs do not."""
    whole = simulated(90)
    span = whole[0].stamp, whole[-1].stamp
    left = thinned(whole, Thinning(floor=RetentionLevel.MINUTE, usual={"run-1": [span]}))
    scopes = [
        record.event.scope.value
        for one in left
        for record in decode(one.signal, one.body).records
        if isinstance(record.event, Measured) and record.event.values
    ]

    assert scopes.count("policy") == 90
    assert scopes.count("env") <= 4


def test_who_spoke_in_a_second_still_speaks_in_it() -> None:
    """A source whose numbers went states nothing but that it is there; one that was silent stays silent."""
    whole = [
        batch(n, n / 4, [fakes.policy(START_NS + n * SECOND // 4, n, entropy=0.5)], origin)
        for n in range(1, 200)
        for origin in ([fakes.ORIGIN, OTHER] if n // 4 != 20 else [fakes.ORIGIN])
    ]
    left = thinned(whole)

    def received(batches: list[Batch]) -> set[tuple[int, int]]:
        return {
            (one.stamp // SECOND, record.origin.rank)
            for one in batches
            for record in decode(one.signal, one.body).records
        }

    assert received(left) == received(whole)
    assert len(left) == len({one.stamp // SECOND for one in whole})


@pytest.mark.parametrize(
    "reported",
    [
        [n / 10 for n in range(200)],
        [minute * 60 + tenth / 10 for minute in range(10) for tenth in range(9)],
        [
            *(n / 10 for n in range(50)),
            *(31 + n / 10 for n in range(51)),
            *(36 + 300 * n for n in range(1, 8)),
        ],
    ],
    ids=["fast", "in bursts", "fast, silent, fast, slow"],
)
def test_silence_is_judged_as_it_was(reported: list[float]) -> None:
    """By the intervals of what falls silent, however much was sent within a second: each word at its time."""
    whole = [
        batch(n, second + 0.05 * rank, _entropy(second, n), key)
        for n, second in enumerate(reported, 1)
        for rank, key in enumerate((fakes.ORIGIN, OTHER))
    ]
    words = _words_of_silence(whole)

    assert {"live", "stale", "lost"} <= set(words)
    assert words == _words_of_silence(thinned(whole))


def test_silence_of_several_is_judged_as_it_was() -> None:
    """Who of those that spoke in the last second came last is not known any more, and does not matter."""
    whole = []
    for tenth in range(1, 1904):
        at = tenth / 10
        if tenth % 100 == 1:
            whole.append(batch(2 * tenth - 1, at - 0.02, _entropy(at, tenth), OTHER))
        whole.append(batch(2 * tenth, at, _entropy(at, tenth)))

    words = _words_of_silence(whole)
    assert {"live", "stale", "lost"} <= set(words)
    assert words == _words_of_silence(thinned(whole))


def _entropy(at_s: float, number: int) -> list[Event]:
    return [fakes.policy(START_NS + round(at_s * SECOND), number, entropy=0.5)]


def _words_of_silence(batches: list[Batch]) -> list[str]:
    """What is reported of the link, each half second after the last batch."""
    fold = Fold()
    for one in batches:
        fold.skip(next_tick(one.stamp), [one])
    state = next(iter(fold._runs.values())).state
    ticks = range(state.last_stamp, state.last_stamp + 4000 * SECOND, SECOND // 2)
    return [judge_link(state, tick).state for tick in ticks]


def test_a_number_of_an_env_that_is_gone_does_not_bring_it_back() -> None:
    """What is left stands before the removal, as it did."""
    whole = [batch(1, 1, [fakes.envs(START_NS + SECOND, [0, 1], 1, reward=[1.0, 2.0])])]
    whole.append(batch(2, 2, [fakes.envs(START_NS + 2 * SECOND, [0, 1], 2, reward=[1.0, 2.0])]))
    gone = EnvsRemoved(at=START_NS + 3 * SECOND, env_id=fakes.envs(1, [1], reward=[0.0]).keys["env_id"])
    whole.append(batch(3, 3, [gone]))
    whole += [batch(n, n, [fakes.envs(START_NS + n * SECOND, [0], n, reward=[3.0])]) for n in range(4, 30)]
    fold = Fold()
    for one in thinned(whole):
        fold.skip(next_tick(one.stamp), [one])

    envs = next(iter(fold._runs.values())).state.envs
    assert envs.ids[: envs.n].tolist() == [0]


def test_a_run_may_go_and_another_stays() -> None:
    """Nothing of one is left and all of the other; what went is counted."""
    other = Origin(run_id="run-2", epoch="e2", ours=True)
    whole = [
        batch(n, n, [fakes.policy(START_NS + n * SECOND, n, entropy=0.5), fakes.finished(START_NS)], origin)
        for n, origin in enumerate([fakes.ORIGIN, other] * 20, 1)
    ]
    losses: dict[str, Loss] = {}
    left = list(thin(whole, Thinning(retentions={"run-1": RetentionLevel.GONE}), losses))

    assert left == whole[1::2]
    assert losses == {"run-1": Loss(batches=20, records=40, first=whole[0].stamp, last=whole[-2].stamp)}


def test_what_came_late_keeps_a_number_a_minute_of_its_own_time() -> None:
    """A spool that drains sends minutes in a second; they stay apart."""
    events: list[list[Event]] = [
        [fakes.policy(START_NS + n * 10 * SECOND, n, entropy=0.5)] for n in range(60)
    ]
    whole = [batch(n, 1200 + n / 100, reported) for n, reported in enumerate(events, 1)]
    left = [
        record.event
        for one in thinned(whole)
        for record in decode(one.signal, one.body).records
        if isinstance(record.event, Measured) and record.event.values
    ]

    assert len(left) == 10
    assert [event.conflated.n for event in left if event.conflated] == [6] * 10


def test_lines_of_others_and_of_no_run_are_facts() -> None:
    """Records that no event is made of keep their bytes."""
    message = ExportLogsServiceRequest()
    for text in ("a", "b", "c"):
        log = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=START_NS)
        log.body.string_value = text
    whole = [
        Batch(sequence=n, stamp=START_NS + n, signal=Signal.LOGS, body=message.SerializeToString())
        for n in (1, 2)
    ]
    left = thinned(whole)

    assert len(left) == 1
    assert logs(left, numbers=False) == logs(whole, numbers=False)
