"""Scripted runs: the same by seed, legal in every move, lively, and of any size."""

from itertools import pairwise

import numpy as np
import pytest

from overwatch.catalog import BY_NAME, Scope, Stage
from overwatch.catalog.stages import TRANSITIONS
from overwatch.events import (
    ActionTaken,
    EnvCrashed,
    EpisodeEnded,
    Event,
    GateEvaluated,
    Measured,
    RunFinished,
    RunStarted,
    SeedStageChanged,
)
from overwatch.simulate import FAULTS, Settings
from overwatch.simulate.faults import Planned
from tests.overwatch.simulate.runs import START, measured, of, reported

SMALL = Settings(gpus=1, envs=4, slots=3, seconds=60)
LARGE = Settings(gpus=2, envs=32, slots=6, seconds=60)
ENDING = ("stale", "run-failed", "killed", "training-stuck")
EVERYTHING = tuple(Planned(name=name, at_s=10) for name in FAULTS if name not in ENDING)


def test_the_same_settings_emit_the_same_events() -> None:
    """Two walks of one script are equal to the bit; another seed is another run."""
    settings = Settings(gpus=2, envs=4, slots=3, seconds=10)

    assert reported(settings) == reported(settings)
    assert reported(settings) != reported(Settings(gpus=2, envs=4, slots=3, seconds=10, seed=1))


@pytest.mark.parametrize("settings", [SMALL, LARGE], ids=["1x4x3", "2x32x6"])
def test_a_run_is_whole(settings: Settings) -> None:
    """One start, one end; updates and readings each second, env steps at their rate, time never falls."""
    events = reported(settings)
    updates = [e.index for e in of(events, Measured) if e.scope is Scope.POLICY]
    steps = [e.index for e in of(events, Measured) if e.scope is Scope.ENV]

    assert isinstance(events[0], RunStarted)
    assert [type(e) for e in events].count(RunStarted) == 1
    assert events[-1] == RunFinished(at=START + 60 * 10**9, outcome="completed")
    assert updates == list(range(1, 61))
    assert steps == list(range(601))
    assert sum(e.scope is Scope.GPU for e in of(events, Measured)) == 61
    assert all(a.at <= b.at for a, b in pairwise(events))


@pytest.mark.parametrize("faults", [(), EVERYTHING], ids=["healthy", "all faults"])
@pytest.mark.parametrize("size", [(1, 4, 3), (2, 32, 6)], ids=["1x4x3", "2x32x6"])
def test_every_move_of_a_seed_is_legal(size: tuple[int, int, int], faults: tuple[Planned, ...]) -> None:
    """Each change begins where the slot was last stated to be, and goes where the lifecycle allows."""
    gpus, envs, slots = size
    known: dict[tuple[int, str], Stage] = {}
    moves = 0
    for event in reported(Settings(gpus=gpus, envs=envs, slots=slots, seconds=60, faults=faults)):
        if isinstance(event, Measured) and event.scope is Scope.SLOT:
            known.update(_stages(event))
        elif isinstance(event, SeedStageChanged):
            assert known[event.env_id, event.slot] is event.before
            assert event.after in TRANSITIONS[event.before]
            known[event.env_id, event.slot] = event.after
            moves += 1

    assert moves > 20
    assert len(known) == gpus * envs * slots


def _stages(event: Measured) -> dict[tuple[int, str], Stage]:
    ids = event.keys["env_id"].array().tolist()
    slots = event.keys["slot"].words()
    words = event.values["overwatch.slot.stage"].words()
    return {(env, str(slot)): Stage(str(word)) for env, slot, word in zip(ids, slots, words, strict=True)}


def test_a_lively_fleet_shows_all_ten_stages() -> None:
    """The run of two lanes passes through every stage of the table."""
    events = reported(LARGE)
    seen = {stage for e in of(events, Measured) if e.scope is Scope.SLOT for stage in _stages(e).values()}
    seen |= {event.after for event in of(events, SeedStageChanged)}

    assert seen == set(Stage)


def test_gates_decide() -> None:
    """A gate that failed is followed by a prune of the same seed, one that passed by the next stage."""
    events = reported(LARGE)
    decided = 0
    for gate, after in pairwise(events):
        if isinstance(gate, GateEvaluated):
            assert isinstance(after, SeedStageChanged)
            assert after.seed_id == gate.seed_id
            assert (after.after is Stage.PRUNED) == (not gate.passed)
            assert gate.passed == (not gate.checks_failed)
            decided += 1

    assert decided > 50


def test_a_seed_that_learns_has_a_gradient_health() -> None:
    """Within 0 and 1 while it learns; none in a slot without a seed, or before it trains."""
    learning = {Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED}
    seen = set()
    for event in of(reported(LARGE), Measured):
        if event.scope is Scope.SLOT:
            health = event.values["overwatch.slot.gradient_health"].array().tolist()
            for stage, value in zip(_stages(event).values(), health, strict=True):
                assert 0 < value <= 1 or (np.isnan(value) and stage not in learning), stage
                seen.add((stage, bool(np.isnan(value))))

    assert {(stage, False) for stage in learning} | {(Stage.DORMANT, True), (Stage.EMBARGOED, True)} <= seen


def test_a_gate_that_fails_for_a_gradient_has_measured_that_one() -> None:
    """The slot emits the score of its gate at the same moment, so the two never contradict each other."""
    settings = Settings(gpus=1, envs=16, slots=6, seconds=20, faults=(Planned(name="cull-storm", at_s=5),))
    scores: dict[tuple[int, int, str], float] = {}
    shown: dict[tuple[int, int, str], float] = {}
    for event in reported(settings):
        if isinstance(event, GateEvaluated) and event.checks_failed == ("gradient_ratio",):
            scores[event.at, event.env_id, event.slot] = event.score or 0.0
        elif isinstance(event, Measured) and event.scope is Scope.SLOT:
            health = event.values["overwatch.slot.gradient_health"].array().tolist()
            for (env, slot), value in zip(_stages(event), health, strict=True):
                if (event.at, env, slot) in scores:
                    shown[event.at, env, slot] = value

    assert len(scores) > 5
    for where, score in scores.items():
        assert shown[where] == pytest.approx(score, abs=1e-4)


def test_a_slot_is_embargoed_for_as_long_as_the_run_states() -> None:
    """The start names the steps, and each embargo lasts them."""
    events = reported(LARGE)
    ages = {event.age for event in of(events, SeedStageChanged) if event.before is Stage.EMBARGOED}

    assert ages == {of(events, RunStarted)[0].embargo}
    assert of(reported(Settings(slots=0, seconds=1)), RunStarted)[0].embargo is None


def test_returns_improve() -> None:
    """Episodes at the end of a run earn more than those at its start."""
    ended = of(reported(LARGE), EpisodeEnded)
    third = len(ended) // 3
    early, late = ended[:third], ended[-third:]

    assert _mean(late) > _mean(early) + 0.1


def _mean(ended: list[EpisodeEnded]) -> float:
    return float(np.mean(np.concatenate([event.episode_return.array() for event in ended])))


def test_all_numbers_have_a_row() -> None:
    """Whatever is measured is in the catalogue, words of lanes and blueprints aside."""
    names = {name for event in of(reported(SMALL), Measured) for name in event.values}

    assert {name for name in names if name not in BY_NAME} <= {"lane", "blueprint"}


def test_a_run_without_slots_has_no_word_of_seeds() -> None:
    """No seed, no gate, no rent, no action, no blueprint."""
    events = reported(Settings(gpus=1, envs=4, slots=0, seconds=10))
    started = of(events, RunStarted)[0]

    assert not [e for e in events if isinstance(e, SeedStageChanged | GateEvaluated | ActionTaken)]
    assert not list(measured(events, Scope.ENV, "overwatch.env.rent"))
    assert not [e for e in of(events, Measured) if e.scope is Scope.SLOT]
    assert (started.slots, started.blueprints) == ((), {})


@pytest.mark.parametrize("rate", [0.1, 0.7, 33.3, 1000.0])
def test_any_rate_keeps_the_seconds(rate: float) -> None:
    """Env steps follow the rate; updates and the end do not depend on it."""
    events = reported(Settings(gpus=1, envs=2, slots=1, seconds=3, rate_hz=rate))
    steps = [e for e in of(events, Measured) if e.scope is Scope.ENV]

    assert len(steps) == int(3 * rate) + 1
    assert [e.index for e in of(events, Measured) if e.scope is Scope.POLICY] == [1, 2, 3]
    assert events[-1].at == START + 3 * 10**9


def test_a_large_fleet_is_emitted_in_columns() -> None:
    """Eight lanes of 1,024 envs: a few events a step, not some for each env."""
    settings = Settings(gpus=8, envs=1024, slots=6, seconds=5)
    events = reported(settings)

    assert len(events) < 51 * 20
    assert max(len(e.keys["env_id"]) for e in of(events, Measured) if e.scope is Scope.ENV) == 8192


def test_a_crashed_env_is_silent_until_it_is_back() -> None:
    """Between its crash and its first number after it, no event speaks of the env."""
    faults = (Planned(name="crash-storm", at_s=2),)
    events = reported(Settings(gpus=1, envs=8, slots=2, seconds=40, faults=faults))
    crash = of(events, EnvCrashed)[0]
    later = [event for event in events if event.at > crash.at and _speaks_of(event, crash.env_id)]

    assert later[0].at == crash.at + 20 * 10**9


def _speaks_of(event: Event, env_id: int) -> bool:
    if isinstance(event, SeedStageChanged | GateEvaluated):
        return event.env_id == env_id
    if isinstance(event, Measured) and event.scope is Scope.ENV:
        return env_id in event.keys["env_id"].array()
    return isinstance(event, ActionTaken | EpisodeEnded) and env_id in event.env_id.array()
