"""All runs, tick by tick: routing, quarantine, ticks, what is recorded."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags

from overwatch import codec
from overwatch import fold as folding
from overwatch.events import Column, EnvsRemoved, Event, Origin, Record
from overwatch.fold import FAST_NS, SLOW_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import Decoded, decode_batch
from overwatch.otlp.encode import origin_attributes, request
from overwatch.snapshot import View
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS
from tests.overwatch.otlp.attributes import to_pairs

OTHER = Origin(run_id="run-2", epoch="e2", ours=True)


def _batch(stamp: int, events: list[Event], origin: Origin = ORIGIN, first_seq: int = 1) -> Batch:
    body = request(fakes.records(events, origin, first_seq), origin_attributes(origin))
    return Batch(sequence=stamp, stamp=stamp, signal=Signal.LOGS, body=body)


def test_runs_are_kept_apart_and_the_newest_is_known() -> None:
    """Two runs in one tick are two snapshots; the newest stamp names the default run."""
    fold = Fold()
    batches = [
        _batch(START_NS, [fakes.policy(START_NS, index=1, entropy=0.5)]),
        _batch(START_NS + 1, [fakes.policy(START_NS, index=7, entropy=0.6)], OTHER),
    ]
    frame = fold.advance(START_NS + FAST_NS, batches, ())

    assert frame.newest == "run-2"
    updates = {run: snapshot.run.update for (run, _), snapshot in frame.snapshots.items()}
    assert updates == {"run-1": 1, "run-2": 7}


def test_a_malformed_batch_is_quarantined_and_its_neighbours_fold() -> None:
    """Garbage is counted with a reason; what came before and after it is there."""
    fold = Fold()
    batches = [
        _batch(START_NS, [fakes.policy(START_NS, index=1, entropy=0.5)]),
        Batch(sequence=2, stamp=START_NS + 1, signal=Signal.LOGS, body=b"\xff\xff garbage"),
        _batch(START_NS + 2, [fakes.policy(START_NS, index=2, entropy=0.4)], first_seq=2),
    ]
    frame = fold.advance(START_NS + FAST_NS, batches, ())

    assert frame.tower.problems == 1
    assert frame.tower.last_problem
    assert frame.snapshots["run-1", View()].run.update == 2


def test_an_event_that_cannot_be_folded_is_quarantined_alone() -> None:
    """One bad record in a batch does not take the others with it."""
    bad = fakes.slots(START_NS, [0], ["r0c0"], ["training"])
    bare = type(bad)(
        at=bad.at,
        scope=bad.scope,
        keys={**bad.keys, "slot": fakes.Column.of([0])},
        values={"overwatch.slot.alpha": fakes.Column.of([0.5])},
    )
    good = fakes.policy(START_NS, index=3, entropy=0.5)
    frame = Fold().advance(START_NS + FAST_NS, [_batch(START_NS, [bare, good])], ())

    assert frame.tower.problems == 1
    assert "needs labels" in str(frame.tower.last_problem)
    assert frame.snapshots["run-1", View()].run.update == 3


def test_a_fault_of_ours_takes_one_record_or_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised where it is read or folded: it is quarantined, as what is malformed is."""

    def read(batch: Batch) -> Decoded:
        if batch.sequence == START_NS:
            raise RuntimeError("never thought of")
        return decode_batch(batch)

    def applying(state: RunState, record: Record, stamp: int) -> bool:
        if record.seq == 2:
            raise ZeroDivisionError("nor of this")
        return apply(state, record, stamp)

    monkeypatch.setattr(folding, "apply", applying)
    reported = [fakes.policy(START_NS, index=index, entropy=0.5) for index in (1, 2, 3)]
    batches = [_batch(START_NS, reported[:1]), _batch(START_NS + 1, reported)]
    fold = Fold(read)
    frame = fold.advance(START_NS + FAST_NS, batches, ())

    assert (frame.tower.problems, frame.tower.records) == (2, 2)
    assert frame.tower.last_problem == "Measured of run run-1: ZeroDivisionError: nor of this"
    assert frame.snapshots["run-1", View()].run.update == 3


def test_a_batch_sent_twice_counts_once() -> None:
    """At-least-once delivery is exactly-once on screen."""
    batch = _batch(START_NS, [fakes.policy(START_NS, index=1, entropy=0.5)])
    frame = Fold().advance(START_NS + FAST_NS, [batch, batch], ())

    assert frame.snapshots["run-1", View()].counters["updates"] == 1
    assert frame.tower.duplicates == 1


def test_living_runs_are_recorded_on_slow_ticks_only() -> None:
    """One line a second a run, whatever the fast rate."""
    fold, tick = Fold(), next_tick(START_NS)
    batches = [_batch(START_NS, [fakes.policy(START_NS, index=1, entropy=0.5)])]
    recorded = []
    for _ in range(30):
        recorded += fold.advance(tick, batches, ()).recorded
        batches, tick = [], tick + FAST_NS

    assert len(recorded) == 3
    assert all(int(snapshot.time * 1e9) % SLOW_NS == 0 for snapshot in recorded)


def test_an_ended_run_is_recorded_once_more() -> None:
    """The end is in the log; after it there is silence."""
    fold, tick = Fold(), next_tick(START_NS)
    batches = [_batch(START_NS, [fakes.policy(START_NS, index=1, entropy=0.5), fakes.finished(START_NS + 1)])]
    recorded = []
    for _ in range(50):
        recorded += fold.advance(tick, batches, ()).recorded
        batches, tick = [], tick + FAST_NS

    assert [snapshot.run.outcome for snapshot in recorded] == ["completed"]


def test_a_watched_view_is_projected_beside_the_default() -> None:
    """A reader's own cut is there under its own key; no run named means the newest."""
    view = View(rows=1)
    events: list[Event] = [fakes.envs(START_NS, [0, 1], reward=[0.0, 1.0])]
    frame = Fold().advance(START_NS + FAST_NS, [_batch(START_NS, events)], [(None, view)])

    assert len(frame.snapshots["run-1", view].envs) == 1
    assert len(frame.snapshots["run-1", View()].envs) == 2


EVENTS = st.lists(
    st.one_of(
        st.builds(lambda v: fakes.policy(START_NS, kl_divergence=v), st.floats()),
        st.builds(
            lambda ids, v: fakes.envs(
                START_NS, ids, index=1, reward=[v] * len(ids), step_time=[v] * len(ids)
            ),
            st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5, unique=True),
            st.floats(),
        ),
        st.builds(lambda i: fakes.crashed(START_NS + i, i), st.integers(0, 9)),
        st.builds(lambda i, v: fakes.ended(START_NS + i, [i], [v]), st.integers(0, 9), st.floats()),
        st.builds(lambda i, op: fakes.acted(START_NS, [i], [op]), st.integers(0, 9), st.text(max_size=3)),
        st.builds(lambda w: fakes.slots(START_NS, [0], [w], [w]), st.text(max_size=4)),
        st.builds(lambda m: fakes.non_finite(START_NS, m, (1, 2)), st.text(max_size=4)),
        st.just(fakes.started(START_NS)),
        st.just(fakes.finished(START_NS + SECOND)),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(EVENTS)
def test_any_events_fold_to_a_snapshot_that_is_valid_json(events: list[Event]) -> None:
    """Whatever comes, in whatever order: no exception, and every snapshot encodes and decodes."""
    fold = Fold()
    frame = fold.advance(START_NS + FAST_NS, [_batch(START_NS, events)] if events else [], ())
    frame = fold.advance(START_NS + 20 * SECOND, [], ())

    for snapshot in frame.snapshots.values():
        assert codec.decode(codec.encode(snapshot)) == snapshot


def _reported(tenth: int) -> list[Batch]:
    """One update and one step of two envs, with a crash now and then."""
    at = START_NS + tenth * FAST_NS
    events: list[Event] = [
        fakes.policy(at, index=tenth + 1, kl_divergence=0.001 * tenth, entropy=0.5),
        fakes.envs(at, [0, 1], index=tenth + 1, reward=[0.1, 0.01 * tenth], step_time=[0.1, 0.1]),
    ]
    if tenth % 7 == 3:
        events.append(fakes.crashed(at, 1))
    return [_batch(at, events, first_seq=3 * tenth + 1)]


def test_a_fold_goes_on_after_dump_and_load_as_if_nothing_happened() -> None:
    """At any tick: what follows is the same bytes, and so is the next dump."""
    whole, ticks = Fold(), [next_tick(START_NS) + i * FAST_NS for i in range(60)]
    for tenth, tick in enumerate(ticks):
        resumed = Fold.load(whole.dump())
        frames = [fold.advance(tick, _reported(tenth), ()) for fold in (whole, resumed)]
        shown = [{key: codec.encode(s) for key, s in frame.snapshots.items()} for frame in frames]

        assert shown[0] == shown[1]
        assert frames[0].tower == frames[1].tower
        assert frames[0].recorded == frames[1].recorded
        assert whole.dump() == resumed.dump()


def test_skipped_ticks_record_what_advancing_would() -> None:
    """Who needs no frames gets the same log."""
    advanced, skipped = Fold(), Fold()
    for tenth in range(45):
        tick = next_tick(START_NS) + tenth * FAST_NS
        batches = _reported(tenth) if tenth < 30 else []
        assert skipped.skip(tick, batches) == advanced.advance(tick, batches, ()).recorded

    assert skipped.dump() == advanced.dump()


def test_a_look_is_what_a_watched_view_would_have_been() -> None:
    """A view asked for after the tick is the same; a run that is not there is left out."""
    view = View(rows=1)
    watched = Fold().advance(START_NS, _reported(0), [("run-1", view)])
    fold = Fold()
    fold.advance(START_NS, _reported(0), ())

    assert fold.look([(None, view), ("no such run", view)]) == {
        ("run-1", view): watched.snapshots["run-1", view]
    }


def _gauges(at: int, names: Iterable[str], ids: Sequence[int], *, ended: bool = False) -> bytes:
    message = ExportMetricsServiceRequest()
    named = message.resource_metrics.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": "foreign", "service.instance.id": "i"}))
    for name in names:
        gauge = named.scope_metrics.add().metrics.add(name=name).gauge
        for env in ids:
            point = gauge.data_points.add(time_unix_nano=at, attributes=to_pairs({"overwatch.env.id": env}))
            if ended:
                point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
            else:
                point.as_double = 1.0
    return message.SerializeToString()


def test_an_env_of_a_third_party_is_gone_with_its_last_series() -> None:
    """Points without a recorded value take one value each; after the last one the env is on no board."""
    fold, names = Fold(), ("overwatch.env.reward", "overwatch.env.metric")
    reported = [
        _gauges(START_NS, names, [1, 2, 3]),
        _gauges(START_NS + 1, names[:1], [3], ended=True),
        _gauges(START_NS + 2, names[1:], [3], ended=True),
    ]
    seen = []
    for i, body in enumerate(reported):
        stamp = START_NS + i * FAST_NS
        batch = Batch(sequence=i, stamp=stamp, signal=Signal.METRICS, body=body)
        snapshot = fold.advance(stamp, [batch], ()).snapshots["foreign", View()]
        seen.append({env.env_id: (env.reward, env.metric) for env in snapshot.envs})

    both = {1: (1.0, 1.0), 2: (1.0, 1.0)}
    assert seen == [{**both, 3: (1.0, 1.0)}, {**both, 3: (None, 1.0)}, both]


FIRST_ID = 77_700
IDS = st.lists(st.integers(FIRST_ID, FIRST_ID + 9), min_size=1, max_size=6, unique=True)


def _emit(kind: str, at: int, ids: list[int]) -> list[Event]:
    match kind:
        case "numbers":
            return [fakes.envs(at, ids, step_time=[0.01 * (env % 7) for env in ids])]
        case "episodes":
            return [fakes.ended(at, ids, [float(env % 5) for env in ids])]
        case "slots":
            return [fakes.slots(at, ids, ["r0c0"] * len(ids), ["pruned"] * len(ids))]
        case "crash":
            return [fakes.crashed(at, env) for env in ids]
        case "late":
            return [fakes.envs(at - 10 * SECOND, ids, reward=[1.0] * len(ids))]
        case _:
            return [EnvsRemoved(at=at, env_id=Column.of(ids))]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["numbers", "episodes", "slots", "crash", "late", "remove"]), IDS),
        min_size=1,
        max_size=25,
    )
)
def test_a_removed_env_is_nowhere_but_in_the_feed(steps: list[tuple[str, list[int]]]) -> None:
    """However envs come and go: nothing is quarantined, and no view has a word of one that went."""
    fold = Fold()
    spoke: dict[int, int] = {}
    gone: dict[int, int] = {}
    views = [(None, View(filter="crash")), (None, View(sort="metric", grouped=False))]
    for i, (kind, ids) in enumerate(steps):
        at = START_NS + (i + 1) * SLOW_NS
        last = at - 10 * SECOND if kind == "late" else at
        frame = fold.advance(at, [_batch(at, _emit(kind, at, ids), first_seq=10 * i + 1)], views)
        reported = gone if kind == "remove" else spoke
        reported.update({env: max(last, reported.get(env, 0)) for env in ids})
        living = {env for env, when in spoke.items() if when > gone.get(env, 0)}
        assert frame.tower.problems == 0
        for snapshot in frame.snapshots.values():
            text = codec.encode(msgspec.structs.replace(snapshot, feed=())).decode()
            absent = [str(env) for env in range(FIRST_ID, FIRST_ID + 10) if env not in living]
            assert not [env for env in absent if env in text]


def _counted(start_s: int, at_s: int, change: int) -> Batch:
    """A foreign producer's change of a total, sent at its end."""
    message = ExportMetricsServiceRequest()
    named = message.resource_metrics.add()
    named.resource.attributes.extend(to_pairs({"rl.run.id": "run-d", "rl.algorithm": "ppo"}))
    reported = named.scope_metrics.add().metrics.add(name="overwatch.policy.entropy").sum
    reported.aggregation_temporality = 1
    reported.data_points.add(
        start_time_unix_nano=START_NS + start_s * SECOND,
        time_unix_nano=START_NS + at_s * SECOND,
        as_int=change,
    )
    stamp = START_NS + at_s * SECOND + 1
    return Batch(sequence=stamp, stamp=stamp, signal=Signal.METRICS, body=message.SerializeToString())


def test_totals_of_changes_outlive_a_checkpoint() -> None:
    """What a producer sends as changes adds up, also when the fold was dumped and loaded between."""
    fold = Fold()
    for second in (1, 2):
        fold.advance(START_NS + second * SECOND + FAST_NS, [_counted(second - 1, second, 5)], ())
    fold = Fold.load(fold.dump())
    late = _counted(1, 2, 5)
    frame = fold.advance(START_NS + 3 * SECOND + FAST_NS, [_counted(2, 3, 5), late, _counted(8, 9, 1)], ())

    assert (frame.tower.late, frame.tower.resets) == (1, 1)
    assert frame.snapshots["run-d", View()].policy["entropy"].history[-2:] == (15.0, 1.0)
