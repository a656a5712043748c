"""Silence by its own rhythm: a pause is learned once, a first update and an announced pause are states."""

from collections.abc import Iterator

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.problem import Problem
from overwatch.events import (
    Event,
    Measured,
    Origin,
    PhaseBegan,
    PhaseEnded,
    Record,
    RunFinished,
    RunStateChanged,
    scalars,
)
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS


def at(second: float) -> int:
    """A producer's time."""
    return START_NS + int(second * SECOND)


def beat(second: float) -> Event:
    """A reading of the host: the process lives."""
    return Measured(at=at(second), scope=Scope.HOST, values=scalars({"system.cpu.utilization": 0.5}))


def update(second: float, number: int) -> Event:
    """An update's numbers."""
    return fakes.policy(at(second), number, entropy=0.5 + 0.01 * (number % 3))


def judged(
    events: list[tuple[float, int, Event]], until_s: float
) -> Iterator[tuple[float, dict[str, Problem]]]:
    """What is open, each second, by code; events as (second, rank, what)."""
    waiting = sorted(events, key=lambda one: one[0])
    state: RunState | None = None
    before, tick = Assessment(), START_NS
    while tick < at(until_s):
        tick += SECOND
        while waiting and at(waiting[0][0]) <= tick:
            second, rank, event = waiting.pop(0)
            origin = Origin(run_id="r", rank=rank, epoch=f"e{rank}", ours=True)
            record = Record(origin=origin, event=event)
            state = state or new_run(record)
            apply(state, record, at(second))
        if state is not None:
            before = assess(state, before, tick).assessment
            found = before.findings.values()
            yield (
                (tick - START_NS) / SECOND,
                {item.problem.code: item.problem for item in found if item.cleared_at is None},
            )


def alarms(events: list[tuple[float, int, Event]], until_s: float, since_s: float = 0.0) -> dict[str, float]:
    """When each code that is no info first opened."""
    opened: dict[str, float] = {}
    for second, found in judged(events, until_s):
        for code, problem in found.items():
            if second >= since_s and problem.severity != "info":
                opened.setdefault(code, second)
    return opened


def started(second: float = 0.0, rank: int = 0) -> tuple[float, int, Event]:
    """A producer that promises its end."""
    return second, rank, fakes.started(at(second), n_envs=None)


@pytest.mark.parametrize(("pause_s", "each_s"), [(60, 600), (25, 240)])
def test_a_pause_that_comes_again_is_learned_once(pause_s: int, each_s: int) -> None:
    """It is no alarm from the second time on, however many intervals lie between; a death still is one."""
    spoken = [second for second in range(4 * each_s) if second % each_s < each_s - pause_s]
    events = [started(), *((float(second), 0, update(second, second + 1)) for second in spoken)]
    end = 4 * each_s - pause_s

    assert alarms(events, end + pause_s, since_s=each_s + 1) == {}
    assert alarms(events, end + 4 * pause_s, since_s=each_s + 1).keys() == {"telemetry-stale"}


@pytest.mark.parametrize("loop_s", [20, 120, 170])
@pytest.mark.parametrize("burst", [1, 6])
def test_the_first_updates_of_a_slow_loop_are_waited_for(loop_s: int, burst: int) -> None:
    """What is sent at the start is no rhythm; a death becomes known by that of its updates."""
    sent = [(second, 0, beat(second)) for second in (0.2 * n for n in range(5 * burst))]
    updates = [(n * loop_s, 0, update(n * loop_s, n)) for n in range(1, 6)]

    assert alarms([started(), *sent, *updates], 5.9 * loop_s) == {}
    assert "telemetry-stale" in alarms([started(), *sent, *updates], 5 * loop_s + max(3 * loop_s, 130) + 5)


def test_heartbeats_that_stop_before_the_first_update_are_a_loss() -> None:
    """A process that speaks every second and stops is silent, whatever it still had to do."""
    events = [started(), *((float(second), 0, beat(second)) for second in range(30))]

    assert alarms(events, 60).keys() == {"telemetry-stale"}
    assert "run-lost" in alarms(events, 120)


@pytest.mark.parametrize("who", ["operator", "program"])
def test_an_announced_pause_is_a_state(who: str) -> None:
    """Nothing is sent in it for ten minutes; one that speaks in it, and stops, is found as ever."""
    begun: Event = PhaseBegan(at=at(60), phase="evaluate")
    if who == "operator":
        begun = RunStateChanged(at=at(60), before="running", after="paused")
    before = [started(), *((float(n), 0, update(n, n)) for n in range(1, 60)), (60.0, 0, begun)]
    spoken = [(float(n), 0, beat(n)) for n in range(61, 120)]

    assert alarms(before, 660) == {}
    assert alarms([*before, *spoken], 150).keys() == {"telemetry-stale"}


def ranks(dead: int | None, end: Event | None, stop_s: float = 60.0) -> list[tuple[float, int, Event]]:
    """Eight ranks of which one stops after a while: the others then wait, and their processes go on."""
    events: list[tuple[float, int, Event]] = []
    for rank in range(8):
        events.append(started(rank / 100, rank))
        for n in range(1, int(stop_s)):
            for part, phase in ((0.5, "collect"), (0.9, "update")):
                second = n + part + rank / 1000
                events.append((second, rank, PhaseEnded(at=at(second), phase=phase, duration_s=0.5)))
        lives_until = stop_s if rank == dead else 200
        events += [(second + rank / 100, rank, beat(second)) for second in range(1, int(lives_until))]
    if end is not None and dead is not None:
        events.append((stop_s + 0.2, dead, end))
    return events


KILLED = RunFinished(at=at(60.1), outcome="failed", reason="killed by signal 9: out of memory")


@pytest.mark.parametrize("end", [KILLED, None, fakes.finished(at(60.1))], ids=["killed", "silent", "ended"])
@pytest.mark.parametrize("dead", [5, 1])
def test_the_rank_that_was_killed_first_is_the_cause(dead: int, end: Event | None) -> None:
    """The others wait for it: one critical, which names it, since it stopped."""
    *_, (_, found) = judged(ranks(dead, end), 100)

    assert {code: problem.subject for code, problem in found.items()} == {"training-stalled": f"rank {dead}"}
    assert found["training-stalled"].severity == "critical"
    assert "7 other ranks stopped after it" in found["training-stalled"].message


def test_a_rank_that_leaves_a_run_that_goes_on_is_no_cause() -> None:
    """It is gone, and nothing stalls."""
    events = [one for one in ranks(5, KILLED, 60.0) if one[1] == 5 or not isinstance(one[2], PhaseEnded)]
    events += [one for one in ranks(None, None, 120.0) if one[1] != 5 and isinstance(one[2], PhaseEnded)]
    *_, (_, found) = judged(events, 100)

    assert found.keys() == {"producer-gone"}


def test_a_run_that_is_silent_names_the_rank_that_stopped_first() -> None:
    """Without heartbeats: rank 2 sends nothing any more, the others a few seconds later."""
    events = [
        (n + rank / 100, rank, update(n, n)) for rank in range(4) for n in range(64 if rank != 2 else 50)
    ]
    *_, (_, found) = judged([*(started(rank / 100, rank) for rank in range(4)), *events], 90)

    assert "rank 2 stopped 13s before the others" in found["telemetry-stale"].message
