"""Faults: read from words, pure, and each does to the run what its name states."""

from collections.abc import Callable
from functools import cache
from statistics import fmean

import pytest

from overwatch.catalog import Scope, Stage, find
from overwatch.events import (
    CurriculumChanged,
    EarlyStopped,
    EnvCrashed,
    EpisodeEnded,
    Event,
    Measured,
    NonFiniteSeen,
    RunFinished,
    SeedStageChanged,
)
from overwatch.simulate import FAULTS, FaultError, Settings, parse_fault
from overwatch.simulate.faults import Conditions, Planned, conditions_at
from tests.overwatch.simulate.runs import START, measured, of, reported

BEGIN, LENGTH = 10, 50
SOON = BEGIN + 20
"""Seconds of a run in which whatever a fault changes has begun to differ."""


def run(*names: str, seconds: int = LENGTH) -> list[Event]:
    """A run of two lanes in which these faults begin at second ten."""
    faults = tuple(Planned(name=name, at_s=BEGIN) for name in names)
    return reported(Settings(gpus=2, envs=8, slots=3, seconds=seconds, faults=faults))


@cache
def healthy(seconds: int = LENGTH) -> list[Event]:
    """The same without a fault; made where it is asked for, as each worker imports all modules."""
    return run(seconds=seconds)


def _late(events: list[Event], scope: Scope, short: str) -> list[list[float]]:
    """The values of one row in the last ten seconds of a run."""
    row = find(short, scope)
    assert row is not None
    return [values for second, values in measured(events, scope, row.name) if second > LENGTH - 10]


def _by_lane(events: list[Event], scope: Scope, short: str) -> tuple[float, float]:
    """Mean of the first half and of the second half of a column: lane 0 and lane 1."""
    rows = _late(events, scope, short)
    half = len(rows[0]) // 2
    return fmean(v for row in rows for v in row[:half]), fmean(v for row in rows for v in row[half:])


def _one(events: list[Event], scope: Scope, short: str) -> float:
    return fmean(value for row in _late(events, scope, short) for value in row)


def _culls(events: list[Event]) -> list[int]:
    return [e.env_id for e in of(events, SeedStageChanged) if e.after is Stage.PRUNED]


def _crashes(events: list[Event]) -> None:
    crashed = {event.env_id for event in of(events, EnvCrashed)}
    assert crashed
    assert min(crashed) >= 8


def _culled(events: list[Event]) -> None:
    few = _culls(healthy())
    many = _culls(events)
    assert len(many) > 3 * len(few) + 5
    assert sum(env < 8 for env in many) > len(many) / 2


def _collapsed(events: list[Event]) -> None:
    assert _one(events, Scope.POLICY, "kl_divergence") > 0.03
    assert _one(events, Scope.POLICY, "entropy") < 0.1
    assert _one(events, Scope.POLICY, "clip_fraction") > 0.5
    assert _one(events, Scope.POLICY, "explained_variance") < 0
    assert of(events, EarlyStopped)


def _nan(events: list[Event]) -> None:
    losses = [v[0] for v in _late(events, Scope.POLICY, "policy_loss")]
    assert all(loss != loss for loss in losses)  # noqa: PLR0124 only NaN differs from itself
    stated = {(event.scope, event.metric) for event in of(events, NonFiniteSeen)}
    assert {scope for scope, _ in stated} == {Scope.POLICY, Scope.ENV}
    assert {ids for e in of(events, NonFiniteSeen) for ids in e.env_ids} == {14, 15}


def _throttled(events: list[Event]) -> None:
    cool, hot = _by_lane(events, Scope.GPU, "temperature_c")
    assert hot > 85 > cool
    first, last = _by_lane(events, Scope.ENV, "step_time")
    assert last > 1.5 * first
    busy, throttled = _by_lane(events, Scope.GPU, "utilization")
    assert throttled > busy + 0.2


def _full(events: list[Event]) -> None:
    first, last = _by_lane(events, Scope.GPU, "memory_used_bytes")
    total, _ = _by_lane(events, Scope.GPU, "memory_total_bytes")
    assert first > 0.9 * total > last


def _starved(events: list[Event]) -> None:
    assert _one(events, Scope.GPU, "utilization") < 0.4
    assert _one(events, Scope.HOST, "disk_read_bytes_per_s") > 5 * 12e6


def _dragged(events: list[Event]) -> None:
    first, last = _by_lane(events, Scope.ENV, "step_time")
    assert last > 2.2 * first
    cool, hot = _by_lane(events, Scope.GPU, "temperature_c")
    assert hot < cool + 20


def _miserable(events: list[Event]) -> None:
    returns = [fmean(e.episode_return.array().tolist()) for e in of(events, EpisodeEnded)]
    assert fmean(returns[-10:]) < 0 < fmean(returns[:10])


def _harder(events: list[Event]) -> None:
    begun = START + BEGIN * 10**9
    assert of(events, CurriculumChanged) == [CurriculumChanged(at=begun, name="level", before="1", after="2")]
    _miserable(events)


def _silent(events: list[Event]) -> None:
    assert max(event.at for event in events) < START + BEGIN * 10**9
    assert not of(events, RunFinished)


def _jumped(short: str, factor: float) -> Callable[[list[Event]], None]:
    """A row of the policy that is about so many times what it is in the healthy run."""

    def look(events: list[Event]) -> None:
        usual = _one(healthy(), Scope.POLICY, short)
        assert 0.7 < _one(events, Scope.POLICY, short) / usual / factor < 1.4

    return look


def _silent_nan(events: list[Event]) -> None:
    losses = [v[0] for v in _late(events, Scope.POLICY, "policy_loss")]
    assert all(loss != loss for loss in losses)  # noqa: PLR0124 only NaN differs from itself
    assert not of(events, NonFiniteSeen)


def _stopped(events: list[Event]) -> None:
    stops = of(events, EarlyStopped)
    assert len(stops) == LENGTH - BEGIN + 1
    assert {(stop.target, stop.kl_divergence) for stop in stops} == {(0.015, 0.0225)}


def _all_or_nothing(events: list[Event]) -> None:
    late = [e for e in of(events, EpisodeEnded) if e.at >= START + BEGIN * 10**9]
    assert {value for e in late for value in e.episode_return.array().tolist()} == {0.0, 1.0}


def _one_died(events: list[Event]) -> None:
    assert [event.env_id for event in of(events, EnvCrashed)] == [15]


def _failed(events: list[Event]) -> None:
    (finished,) = of(events, RunFinished)
    assert (finished.outcome, finished.at) == ("failed", START + BEGIN * 10**9)


def _killed(events: list[Event]) -> None:
    (finished,) = of(events, RunFinished)
    assert (finished.outcome, finished.at) == ("lost", START + BEGIN * 10**9)
    assert "signal 9" in str(finished.reason)


EFFECTS: dict[str, Callable[[list[Event]], None]] = {
    "crash-storm": _crashes, "cull-storm": _culled, "policy-collapse": _collapsed, "nan": _nan,
    "thermal-throttle": _throttled, "oom-climb": _full, "io-starvation": _starved, "straggler": _dragged,
    "reward-collapse": _miserable, "curriculum-step": _harder, "stale": _silent, "run-failed": _failed,
    "killed": _killed,
    "env-crash": _one_died, "silent-nan": _silent_nan, "early-stops": _stopped,
    "sparse-rewards": _all_or_nothing, "kl-high": _jumped("kl_divergence", 3.5),
    "clip-high": _jumped("clip_fraction", 4.0), "entropy-collapse": _jumped("entropy", 0.08),
    "gradient-explosion": _jumped("grad_norm", 15.0), "critic-failure": _jumped("value_loss", 8.0),
    "ratio-explosion": _jumped("ratio_max", 8.0), "ratio-collapse": _jumped("ratio_min", 0.05),
    "updates-slow": _jumped("update_time", 3.0), "sampler-mismatch": _jumped("first_ratio_error", 20_000.0),
    "learning-rate-drop": _jumped("learning_rate", 0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_begins_when_it_is_planned(name: str) -> None:
    """Before it begins nothing differs from the healthy run; after that something does."""
    events = run(name, seconds=SOON)
    before = START + BEGIN * 10**9

    assert [e for e in events if e.at < before] == [e for e in healthy(SOON) if e.at < before]
    assert events != healthy(SOON)


@pytest.mark.parametrize("name", EFFECTS)
def test_a_fault_does_what_its_name_states(name: str) -> None:
    """What it is named after is there."""
    EFFECTS[name](run(name))


@pytest.mark.parametrize("name", EFFECTS)
def test_a_healthy_run_has_none_of_it(name: str) -> None:
    """The same look at the healthy run finds nothing, so that the test above can fail."""
    with pytest.raises(AssertionError):
        EFFECTS[name](healthy())


def test_several_faults_at_once() -> None:
    """Two faults of one run both show."""
    events = run("oom-climb", "crash-storm", "policy-collapse")

    _crashes(events)
    _full(events)
    _collapsed(events)


def test_faults_are_pure_and_their_order_does_not_matter() -> None:
    """Conditions depend on the plan and the second only; of one fault planned twice the earlier counts."""
    plans = [Planned(name=name, at_s=5.0 + i) for i, name in enumerate(FAULTS)]
    twice = [Planned(name="oom-climb", at_s=20), Planned(name="oom-climb", at_s=0)]

    assert conditions_at(40, plans) == conditions_at(40, plans[::-1])
    assert conditions_at(4, plans) == Conditions()
    assert conditions_at(45, twice).leak == conditions_at(45, twice[::-1]).leak == 1.0


@pytest.mark.parametrize(
    ("word", "stated"),
    [
        ("cull-strom@5", "did you mean cull-storm?"),
        ("meteor@5", "crash-storm, cull-storm"),
        ("nan", "write it like nan@20"),
        ("nan@", "write it like nan@20"),
        ("nan@soon", "write it like nan@20"),
        ("nan@-3", "write it like nan@20"),
        ("nan@inf", "write it like nan@20"),
        ("nan@nan", "write it like nan@20"),
        ("", "there are: crash-storm"),
    ],
)
def test_a_fault_that_cannot_be_planned_is_explained(word: str, stated: str) -> None:
    """The message names the fault that was meant, or all of them, or how to write it."""
    with pytest.raises(FaultError) as caught:
        parse_fault(word)

    assert stated in str(caught.value)


def test_a_fault_is_read() -> None:
    """Name and second, with a fraction."""
    assert parse_fault("nan@2.5") == Planned(name="nan", at_s=2.5)


def test_throttle_words_come_with_their_row() -> None:
    """Where the catalogue has a row for it, the throttled lane states why; else nothing is reported."""
    row = find("throttle", Scope.GPU)
    stated = [
        e.values[row.name].words() for e in of(run("thermal-throttle"), Measured)
        if row is not None and row.name in e.values
    ]  # fmt: skip

    assert bool(stated) == (row is not None)
    assert not stated or stated[-1] == [None, "thermal"]
