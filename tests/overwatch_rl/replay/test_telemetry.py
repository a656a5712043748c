"""What the replay server reports: each thing once, by the names of the catalogue."""

from overwatch.catalog import Scope
from overwatch.events import Measured, Tallied
from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest
from overwatch_rl.replay.base import Capacity, TableConfig
from overwatch_rl.replay.process import look
from overwatch_rl.replay.service import Replay
from overwatch_rl.replay.telemetry import ROLE, Tower
from tests.fakes import SECOND
from tests.overwatch_rl.recording import KeptRun
from tests.overwatch_rl.replay.serving import ENCODING, chunk


def tallies(run: KeptRun) -> dict[tuple[str, ...], float]:
    """The newest total of each series: the metric and the values of its labels."""
    run.close()
    series = [one for event in run.of(Tallied) for one in event.series]
    return {(one.metric.rpartition(".")[2], *one.labels.values()): one.sum for one in series}


def gauges(run: KeptRun) -> dict[str, float]:
    """The newest of each."""
    found: dict[str, float] = {}
    for event in run.of(Measured):
        if event.scope == Scope.REPLAY:
            found |= {name: value.first() for name, value in event.values.items()}
    return found


def test_what_tables_did_is_counted_once_however_often_one_looks() -> None:
    """Inserted, leased, served again, removed, refused; each under its table."""
    run = KeptRun(role=ROLE)
    tower = Tower(run)
    config = TableConfig(name="a", capacity=Capacity(items=3))
    replay = Replay([config])
    replay.declare("a", ENCODING)
    replay.append("a", ENCODING.hash, [chunk(first=4 * one) for one in range(3)])
    replay.append("a", "another", [chunk()])
    look(replay, tower)
    look(replay, tower)
    assert replay.lease("a", "l", 8, 0) is not None
    replay.resume("a", "l", 0)
    assert replay.lease("a", "l", 8, 1) is not None
    replay.acknowledge("a", "l", 1)
    replay.clear("a", ClearRequest())
    look(replay, tower)
    stats = replay.stats()[0]
    counted = tallies(run)
    assert counted["inserted", "a"] == 3
    assert counted["sampled", "a"] == stats.sampled == 4
    assert counted["redelivered", "a"] == stats.redelivered == 2
    assert counted["removed", "a", "cleared"] == 1
    assert counted["refused", "a", "encoding"] == 1
    assert run.link.refused == []


def test_an_acknowledgement_that_came_late_is_counted() -> None:
    """Its lease ended by time, and another learner has the chunk."""
    run, now = KeptRun(role=ROLE), [SECOND]
    config = TableConfig(name="a", lease_s=1.0)
    replay = Replay([config], lambda: now[0])
    replay.declare("a", ENCODING)
    replay.append("a", ENCODING.hash, [chunk()])
    assert replay.lease("a", "slow", 4, 0) is not None
    now[0] += 2 * SECOND
    tower = Tower(run)
    look(replay, tower)
    assert replay.lease("a", "other", 4, 0) is not None
    replay.acknowledge("a", "slow", 1)
    look(replay, tower)
    assert tallies(run)["late", "ack"] == 1
    assert run.link.refused == []


def test_gauges_are_over_all_tables_and_absent_where_no_table_has_them() -> None:
    """A table of steps has no leases; so without one of sequences there is no such number."""
    run = KeptRun(role=ROLE)
    steps = TableConfig(name="s", kind="steps", selector="uniform", remover="oldest")
    replay = Replay([steps])
    replay.declare("s", ENCODING)
    replay.append("s", ENCODING.hash, [chunk()])
    look(replay, Tower(run))
    found = gauges(run)
    assert found["replay.items"] == found["replay.steps"] == 4
    assert "replay.leases" not in found


def test_requests_are_counted_by_method_and_status() -> None:
    """With how long they took."""
    run = KeptRun(role=ROLE)
    tower = Tower(run)
    tower.answered("Append", "OK", 0.5)
    tower.answered("Append", "OK", 0.25)
    tower.answered("Append", "RESOURCE_EXHAUSTED", 0.0)
    counted = tallies(run)
    assert counted["requests", "Append", "OK"] == 2
    assert counted["requests", "Append", "RESOURCE_EXHAUSTED"] == 1
    assert counted["request_duration", "Append"] == 0.75
