"""A run that gets less done than at its best, or than another run, is reported with the phase that grew."""

import random
from collections.abc import Callable

import pytest

from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import CurriculumChanged, Event, Measured, PhaseEnded
from overwatch.snapshot import Baseline
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.fakes import SECOND, START_NS

STEPS = 100
"""Env steps of one update."""


def _run(seconds: Callable[[int], tuple[float, float]], updates: int) -> list[Event]:
    """Updates that take these (collecting, learning) seconds each, with their steps and phases."""
    reported: list[Event] = []
    at = START_NS
    for number in range(updates):
        collect, learn = seconds(number)
        at += int(collect * SECOND)
        reported.append(fakes.envs(at, [0, 1], index=(number + 1) * STEPS // 2, reward=[0.0, 0.0]))
        reported.append(PhaseEnded(at=at, phase="collect", duration_s=collect))
        at += int(learn * SECOND)
        reported.append(PhaseEnded(at=at, phase="update", duration_s=learn))
        reported.append(fakes.policy(at, index=number, kl_divergence=0.01))
    return reported


def _watched(events: list[Event], baseline: Baseline | None = None) -> tuple[Judged, set[str]]:
    """The last judgement of a run, and every finding about its throughput on the way; a tick a second."""
    reported = fakes.records(events)
    state, before, judged, found = new_run(reported[0]), Assessment(), None, set[str]()
    tick = START_NS
    for record in reported:
        while tick < record.event.at:
            tick += SECOND
            judged = assess(state, before, tick, baseline=baseline) if state.last_stamp else None
            before = before if judged is None else judged.assessment
            found |= {
                item.problem.message
                for item in before.findings.values()
                if item.problem.code.startswith("throughput")
            }
        apply(state, record, record.event.at)
    assert judged is not None
    return judged, found


def _steady(_number: int) -> tuple[float, float]:
    return 3.0, 1.0


def test_a_steady_run_is_at_its_best() -> None:
    """Steps a second over whole updates; nothing is found."""
    judged, found = _watched(_run(_steady, 60))
    reported = judged.assessment.watched.slow.throughput

    assert reported is not None
    assert reported.now.rate == pytest.approx(STEPS / 4)
    assert reported.best is not None
    assert reported.best.rate == pytest.approx(STEPS / 4)
    assert found == set()


def test_a_fall_is_found_with_the_phase_that_grew() -> None:
    """Collecting takes three times as long from the sixtieth update on."""
    judged, found = _watched(_run(lambda number: (9.0 if number >= 60 else 3.0, 1.0), 70))
    last = list(judged.assessment.findings.values())[-1].problem

    assert (last.code, last.severity) == ("throughput-regression", "warning")
    assert last.message == "10 steps/s, 60% below 25 of its best hour; collect takes 3.0x as long"
    assert last.hint == "look at what collect does now and did not before"
    assert found


def test_all_phases_that_grow_alike_name_the_machine() -> None:
    """No single phase is to blame: the message states what fell, the hint where to look."""
    judged, _found = _watched(_run(lambda number: (6.0, 2.0) if number >= 60 else (3.0, 1.0), 75))
    last = list(judged.assessment.findings.values())[-1].problem

    assert last.code == "throughput-regression"
    assert "50% below" in last.message


@pytest.mark.parametrize(
    ("seconds", "updates"),
    [
        (lambda number: (9.0, 3.0) if number < 4 else (3.0, 1.0), 80),
        (lambda number: (40.0 if number % 20 == 19 else 3.0, 1.0), 80),
        (lambda number: (3.4 if number >= 60 else 3.0, 1.0), 80),
        (lambda _number: (120.0, 60.0), 20),
    ],
    ids=["a slow start", "an evaluation now and then", "a tenth less", "updates of minutes"],
)
def test_what_is_everyday_is_no_fall(seconds: Callable[[int], tuple[float, float]], updates: int) -> None:
    """Compiling, evaluations, a little less, and long updates (an hour of them) are nothing."""
    assert _watched(_run(seconds, updates))[1] == set()


def test_noise_is_no_fall() -> None:
    """Updates that take between half and twice their time, for half an hour."""
    dice = random.Random(5)  # noqa: S311 no secret

    assert _watched(_run(lambda _number: (3 * dice.uniform(0.5, 2), 1.0), 400))[1] == set()


def test_another_task_is_measured_anew() -> None:
    """What was best at an easier level is no measure."""
    events = _run(lambda number: (9.0 if number >= 60 else 3.0, 1.0), 100)
    harder = CurriculumChanged(at=START_NS + 241 * SECOND, name="level", before="1", after="2")
    place = next(i for i, event in enumerate(events) if event.at > harder.at)

    assert _watched([*events[:place], harder, *events[place:]])[1] == set()


def test_a_run_is_compared_with_a_baseline() -> None:
    """It is 40 % slower than that run from its first minute on, and never was faster."""
    baseline = Baseline(name="run-0", unit="steps", rate=42.0, phases={"collect": 0.01, "update": 0.01})
    _judged, found = _watched(_run(_steady, 20), baseline)

    assert found == {"25 steps/s, 40% below 42 of run-0; collect takes 3.0x as long"}
    assert _watched(_run(_steady, 20), Baseline(name="run-0", unit="updates", rate=42.0))[1] == set()
    assert _watched(_run(_steady, 20), Baseline(name="run-0", unit="steps", rate=28.0))[1] == set()


def test_a_run_without_steps_is_measured_by_its_updates() -> None:
    """Updates a second are a throughput too."""
    events = _run(_steady, 60)
    policy = [event for event in events if isinstance(event, Measured) and event.scope is Scope.POLICY]
    judged, _found = _watched(policy)
    reported = judged.assessment.watched.slow.throughput

    assert reported is not None
    assert (reported.now.unit, reported.now.rate) == ("updates", pytest.approx(0.25))


def test_the_memory_of_a_run_is_bounded() -> None:
    """However long it runs, an hour of stretches is kept, and the best beyond it."""
    state: RunState = fakes.folded(_run(_steady, 2000))

    assert len(state.pace.stretches.items) == 360
