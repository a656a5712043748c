"""A run that whoever controls it has paused, as the fold sees it: nothing that stands still is wrong."""

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from overwatch.catalog import Scope
from overwatch.catalog.learner import SGD_STEPS, WEIGHTS_AGE
from overwatch.catalog.replay import HEARTBEAT_AGE
from overwatch.events import (
    Event,
    Measured,
    Origin,
    PhaseBegan,
    PhaseEnded,
    Record,
    RunFinished,
    RunStateChanged,
    Tallied,
    TallySeries,
    scalars,
)
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.projection.run import run_line
from overwatch.simulate import Script, Settings
from overwatch.snapshot import Snapshot, View
from overwatch.tui import once
from tests import fakes
from tests.fakes import ORIGIN, SECOND, START_NS
from tests.overwatch.diagnose.test_services import WELL

BEGIN_S, AWAY_S, AFTER_S = 30, 640, 40
"""Longer than any patience: that of a learner without an optimiser step is ten minutes."""
HEALTHY = Settings(gpus=1, envs=4, slots=0, rate_hz=1, seconds=BEGIN_S + AFTER_S, run_id=ORIGIN.run_id)
CONTROL = Origin(run_id=ORIGIN.run_id, epoch="c", role="orchestrator", ours=True)


def _trainer() -> Iterator[tuple[Origin, Event]]:
    """A healthy run with a hole in it."""
    for moment in Script(HEALTHY, START_NS).moments():
        away = AWAY_S * SECOND * (moment.at >= START_NS + BEGIN_S * SECOND)
        yield from ((ORIGIN, msgspec.structs.replace(event, at=event.at + away)) for event in moment.events)


def _control() -> Iterator[tuple[Origin, Event]]:
    """What the orchestrator sends: every other second how old the newest heartbeat is, and the two moves."""
    for second in range(0, BEGIN_S + AWAY_S + AFTER_S, 2):
        age = scalars({HEARTBEAT_AGE.name: 1.0})
        yield CONTROL, Measured(at=START_NS + second * SECOND, scope=Scope.ORCHESTRATOR, values=age)
    for second, before, after in (
        (BEGIN_S, "running", "paused"),
        (BEGIN_S + AWAY_S, "paused", "running"),
    ):
        at = START_NS + int((second - 0.1) * SECOND)
        yield CONTROL, RunStateChanged(at=at, before=before, after=after)


def _seen(
    events: list[tuple[Origin, Event]], until_s: int, late_s: float = 0, each_from_s: float = 1e9
) -> list[Snapshot]:
    """A snapshot every other second, at last at each tick; what is controlled comes in late."""
    records: dict[tuple[int, str], list[Record]] = {}
    received = [
        (event.at + int(late_s * SECOND) * isinstance(event, RunStateChanged), origin, event)
        for origin, event in events
    ]
    for seq, (stamp, origin, event) in enumerate(sorted(received, key=lambda one: one[0]), start=1):
        record = Record(origin=origin, event=event, seq=seq)
        records.setdefault((stamp, origin.role), []).append(record)
    waiting = deque(
        Batch(
            sequence=number, stamp=at, signal=Signal.LOGS,
            body=request(together, origin_attributes(together[0].origin)),
        )
        for number, ((at, _), together) in enumerate(records.items(), start=1)
    )  # fmt: skip
    fold, tick, seen = Fold(), next_tick(START_NS), []
    while tick < START_NS + until_s * SECOND:
        due = []
        while waiting and waiting[0].stamp <= tick:
            due.append(waiting.popleft())
        seen.append(fold.advance(tick, due, ()).snapshots[ORIGIN.run_id, View()])
        tick += FAST_NS * (20 if tick < START_NS + each_from_s * SECOND else 1)
    assert (fold.tower.problems, fold.tower.unjudged) == (0, 0), fold.tower
    return seen


@pytest.fixture(scope="module")
def paused() -> list[Snapshot]:
    """The run, from its begin to some time after the pause."""
    return _seen([*_trainer(), *_control()], BEGIN_S + AWAY_S + AFTER_S - 2)


def test_nothing_is_found_in_a_pause_and_nothing_by_it_afterwards(paused: list[Snapshot]) -> None:
    """Neither a silence, a stall, a bound nor a slow service; nor a rate or a rhythm that the gap makes."""
    during = paused[BEGIN_S // 2 + 1 : (BEGIN_S + AWAY_S) // 2 - 1]

    assert {finding.code for snapshot in paused for finding in snapshot.findings} == set()
    assert {snapshot.run.control for snapshot in during} == {"paused"}
    assert {snapshot.link.state for snapshot in during} <= {"live", "slow"}
    assert {snapshot.link.word for snapshot in during} == {"paused"}
    assert {lane.bound for snapshot in during for lane in snapshot.system.gpus} == {None}
    assert {service.status for snapshot in during for service in snapshot.processes} == {"ok"}


WAITING: Final = {
    "rollouts-starved": {"queue.sequences": 40.0},
    "rollouts-full": {"queue.sequences": 640.0},
    "rollouts-stale": {"data_age": 5.0},
    "rollouts-env-dead": {"envs_silent": 8.0},
}
"""What a rollouts server reports while nothing moves, by the finding that it is in a run that goes on."""
STANDING: Final = {*WAITING, "training-stalled", "learner-stalled", "weights-old"}
"""Every rule that is about what stands still; all others are judged of a run that goes on alone."""


def _standing() -> Iterator[tuple[Origin, Event]]:
    """The trainer's hole beside services that still report, each of them that nothing moves."""
    for second in range(0, BEGIN_S + AWAY_S, 2):
        at, moved = START_NS + second * SECOND, float(min(second, BEGIN_S))
        age = scalars({WEIGHTS_AGE.name: second - moved})
        yield ORIGIN, Measured(at=at, scope=Scope.LEARNER, values=age)
        steps = TallySeries(metric=SGD_STEPS.name, labels={}, sum=moved)
        yield ORIGIN, Tallied(at=at, scope=Scope.LEARNER, series=(steps,))
        for code, gauges in WAITING.items():
            origin = Origin(run_id=ORIGIN.run_id, epoch=code, role=code, ours=True)
            named = WELL | (gauges if second > BEGIN_S else {})
            values = scalars({f"overwatch.rollouts.{name}": value for name, value in named.items()})
            yield origin, Measured(at=at, scope=Scope.ROLLOUTS, values=values)
            counted = {"accepted": moved, "served": moved, "batches": float(second)}
            series = tuple(
                TallySeries(metric=f"overwatch.rollouts.{name}", labels={"status": "few"}, sum=count)
                for name, count in counted.items()
            )
            yield origin, Tallied(at=at, scope=Scope.ROLLOUTS, series=series)


@pytest.mark.parametrize("is_paused", [False, True])
def test_every_rule_about_what_stands_still_knows_the_pause(*, is_paused: bool) -> None:
    """The same events are all its findings in a run that should go on, and none in one that is paused."""
    control = [pair for pair in _control() if is_paused or isinstance(pair[1], Measured)]
    seen = _seen([*_trainer(), *_standing(), *control], BEGIN_S + AWAY_S - 4)

    found = {finding.code for snapshot in seen for finding in snapshot.findings}
    assert found == (set() if is_paused else STANDING)


PAUSED_S, RESUMED_S, ENDED_S = 20, 340, 365
"""A shorter pause, in which weights get as old as they may not be in a run that goes on."""


def _short(paused_s: float, resumed_s: float, hangs_s: float) -> list[tuple[Origin, Event]]:
    """A run that waits for experience over a pause, and from `hangs_s` on for ever; then it is terminated."""
    away_s = RESUMED_S - PAUSED_S
    timed: list[tuple[float, Origin, Event]] = []
    for moment in Script(HEALTHY, START_NS).moments():
        at_s = (moment.at - START_NS) / SECOND
        at_s += away_s * (at_s >= PAUSED_S)
        timed += [(at_s, ORIGIN, event) for event in moment.events if at_s < min(ENDED_S, hangs_s)]
    for number in range(ENDED_S):
        beat = scalars({HEARTBEAT_AGE.name: 1.0})
        age = scalars({WEIGHTS_AGE.name: max(1.0, min(number, RESUMED_S) - PAUSED_S)})
        timed.append((number, CONTROL, Measured(at=0, scope=Scope.ORCHESTRATOR, values=beat)))
        timed.append((number, ORIGIN, Measured(at=0, scope=Scope.LEARNER, values=age)))
        if number not in range(PAUSED_S, RESUMED_S) and number < hangs_s:
            took_s = away_s if number == RESUMED_S else 0.05
            timed.append((number + 0.3 - took_s, ORIGIN, PhaseBegan(at=0, phase="queue_wait")))
            ended = PhaseEnded(at=0, phase="queue_wait", duration_s=took_s)
            timed.append((number + 0.3, ORIGIN, ended))
    timed.append((hangs_s, ORIGIN, PhaseBegan(at=0, phase="queue_wait")))
    for second, before, after in (
        (paused_s, "running", "paused"),
        (resumed_s, "paused", "running"),
        (ENDED_S - 3, "running", "terminating"),
        (ENDED_S - 2, "terminating", "terminated"),
    ):
        timed.append((second, CONTROL, RunStateChanged(at=0, before=before, after=after)))
    return [
        (origin, msgspec.structs.replace(event, at=START_NS + int(second * SECOND)))
        for second, origin, event in timed
        if second < ENDED_S
    ]


@pytest.mark.parametrize(
    ("paused_s", "resumed_s", "late_s"),
    [
        (PAUSED_S - 0.9, RESUMED_S - 1.95, 0.0),
        (PAUSED_S - 0.5, RESUMED_S - 0.65, 0.7),
        (PAUSED_S - 0.05, RESUMED_S - 0.05, 2.5),
    ],
)
def test_no_moment_of_a_pause_makes_a_finding(paused_s: float, resumed_s: float, late_s: float) -> None:
    """At each tick the run is judged, and is well: before its first phase, and as it is terminated."""
    seen = _seen(_short(paused_s, resumed_s, hangs_s=ENDED_S), ENDED_S, late_s, RESUMED_S - 4)

    assert {finding.code for snapshot in seen for finding in snapshot.findings} == set()


@pytest.mark.parametrize("late_s", [0.0, 2.5])
def test_a_run_that_hangs_after_a_pause_is_found_as_soon_as_before_it(late_s: float) -> None:
    """The pause is no gap, nor a time that the phase usually takes, nor part of how long it hangs."""
    hangs_s = RESUMED_S + 6.5
    seen = _seen(_short(PAUSED_S - 0.05, RESUMED_S - 0.05, hangs_s), ENDED_S - 4, late_s)
    found = [one for snapshot in seen for one in snapshot.findings if one.code == "training-stalled"]

    assert found
    assert {one.since for one in found} == {START_NS / 1e9 + hangs_s}


@pytest.mark.parametrize("late_s", [0.0, 2.5])
def test_updates_and_steps_before_the_word_of_the_resume_teach_no_gap(late_s: float) -> None:
    """The rhythm of a loop without phases, by which a stall is found, does not have the pause."""
    hangs_s, seconds = RESUMED_S + 60, RESUMED_S + 150
    events: list[tuple[float, Origin, Event]] = [
        (PAUSED_S + 0.5, CONTROL, RunStateChanged(at=0, before="running", after="paused")),
        (RESUMED_S - 0.5, CONTROL, RunStateChanged(at=0, before="paused", after="running")),
    ]
    events.append((0, ORIGIN, fakes.started(0)))
    for second in range(seconds):
        alive = scalars({"system.memory.usage": 1.0})
        events.append((second, ORIGIN, Measured(at=0, scope=Scope.HOST, values=alive)))
        if second <= PAUSED_S or RESUMED_S <= second < hangs_s:
            step = second - (RESUMED_S - PAUSED_S) * (second >= RESUMED_S)
            events.append((second, ORIGIN, fakes.envs(0, [0, 1], index=step + 1, reward=[1.0, 2.0])))
            events.append((second, ORIGIN, fakes.policy(0, index=step + 1, kl_divergence=0.01)))
    timed = [
        (origin, msgspec.structs.replace(event, at=START_NS + int(second * SECOND)))
        for second, origin, event in events
    ]
    seen = _seen(timed, seconds, late_s)
    found = [one for snapshot in seen for one in snapshot.findings if one.code == "training-stalled"]

    assert {one.since for one in found} == {START_NS / 1e9 + hangs_s - 1}
    assert found[0].since + 45 > next(one.time for one in seen if one.findings)


def test_a_finding_that_is_open_over_a_pause_names_it() -> None:
    """Its time has the pause; what was found after it has none."""
    events = [*_trainer(), *_control()]
    events = [
        (origin, fakes.policy(event.at, index=event.index, kl_divergence=0.5))
        if isinstance(event, Measured) and event.scope is Scope.POLICY
        else (origin, event)
        for origin, event in events
    ]
    seen = _seen(events, BEGIN_S + AWAY_S + AFTER_S - 2)
    open_over = [{one.code: one.message for one in snapshot.findings} for snapshot in seen]
    before, after = open_over[BEGIN_S // 2 - 1], open_over[-1]

    assert "policy-kl-divergence" in before, before
    assert "paused" not in before["policy-kl-divergence"]
    assert after["policy-kl-divergence"].endswith(" of the time)"), after
    assert " (paused for 10m" in after["policy-kl-divergence"]


def test_the_verdict_names_the_pause(paused: list[Snapshot]) -> None:
    """How long, and since when; and no word of it when the run goes on."""
    text = paused[(BEGIN_S + 150) // 2].verdict.text
    assert (text[:13], text[-15:]) == ("paused for 2m", "since 08:00:29Z")
    assert "healthy" in paused[-1].verdict.text


@pytest.mark.parametrize(
    ("emits", "link", "word", "code"),
    [(True, "live", "stalled", "training-stalled"), (False, "lost", "lost", "run-lost")],
)
def test_a_trainer_that_hangs_or_is_lost_is_not_live(
    emits: bool,  # noqa: FBT001
    link: str,
    word: str,
    code: str,
) -> None:
    """The samplers of a trainer that hangs go on; the header and the list of runs name its state."""
    events: list[tuple[Origin, Event]] = [
        pair for pair in _trainer() if pair[1].at < START_NS + BEGIN_S * SECOND
    ]
    for second in range(BEGIN_S, BEGIN_S + 400) if emits else ():
        values = scalars({"system.memory.usage": 1.0})
        events.append((ORIGIN, Measured(at=START_NS + second * SECOND, scope=Scope.HOST, values=values)))
    seen = _seen(events, BEGIN_S + 400)

    assert seen[BEGIN_S // 2 - 2].board.counts == {"ok": 4}
    assert seen[-1].link.state == link
    assert code in {one.code for one in seen[-1].findings}
    assert run_line(ORIGIN.run_id, seen[-1], newest=True).state == word
    assert word.upper() in once(seen[-1], "text").splitlines()[0]
    assert seen[-1].board.counts == {"unknown": 4}


@pytest.mark.parametrize("outcome", ["lost", "failed"])
def test_a_run_that_dies_in_a_pause_is_dead(outcome: str) -> None:
    """A pause hides no end."""
    end = RunFinished(at=START_NS + (BEGIN_S + 20) * SECOND, outcome=outcome, reason="killed")
    before = [pair for pair in _trainer() if pair[1].at < START_NS + BEGIN_S * SECOND]
    last = _seen([*before, *_control(), (ORIGIN, end)], BEGIN_S + 30)[-1]

    assert (last.verdict.severity, {one.code for one in last.findings}) == ("critical", {f"run-{outcome}"})


def test_a_pause_of_which_nobody_is_left_is_lost() -> None:
    """Whoever controls it is silent too: that it is paused is no sign of life."""
    until = START_NS + (BEGIN_S + 20) * SECOND
    last = _seen([pair for pair in (*_trainer(), *_control()) if pair[1].at < until], BEGIN_S + 120)[-1]

    assert last.link.state == "lost"
