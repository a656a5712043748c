"""Storms, collapses and lanes: causes are reported, symptoms are counted under them."""

from collections.abc import Sequence

import pytest

from overwatch.catalog import Scope, Stage
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.diagnose.findings import Problem
from overwatch.events import Event, GateEvaluated, Measured, SeedStageChanged, scalars
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import lane_readings

IDS = list(range(64))
LANES = ["gpu0"] * 32 + ["gpu1"] * 32


def _steps(at: int, step_time: Sequence[float] = (0.01,) * 64) -> Event:
    return fakes.envs(at, IDS, step_time=step_time, lane=LANES)  # type: ignore[arg-type]  # lanes are words


def _cull(at: int, env_id: int) -> SeedStageChanged:
    return SeedStageChanged(
        at=at, env_id=env_id, slot=f"s{at % 89}", seed_id="s", before=Stage.TRAINING, after=Stage.PRUNED
    )


def _held(events: list[Event]) -> Judged:
    """Judged for five seconds after the last event, so that every hold is over."""
    state = fakes.folded(events)
    judged = assess(state, Assessment(), state.last_stamp)
    for i in range(1, 45):
        judged = assess(state, judged.assessment, state.last_stamp + i * SECOND // 10)
    return judged


def _problems(events: list[Event]) -> dict[str, Problem]:
    return {item.problem.code: item.problem for item in _held(events).assessment.findings.values()}


def test_crashes_one_after_another_are_one_storm() -> None:
    """Six crashes on a lane are one finding about it; a crash on the other lane keeps its own."""
    events: list[Event] = [_steps(START_NS)]
    events += [fakes.crashed(START_NS + i * SECOND, 32 + i) for i in range(6)]
    events += [fakes.crashed(START_NS + 6 * SECOND, 3)]
    found = _problems(events)

    assert set(found) == {"crash-storm", "env-crashed"}
    assert found["crash-storm"].message == "crash storm: 6 crashes in 60s over 6 envs"
    assert (found["crash-storm"].subject, found["crash-storm"].symptoms) == ("gpu1", 6)
    assert found["env-crashed"].subject == "3"


def test_the_example_of_a_storm_is_an_env_that_crashed() -> None:
    """Also when all of them are back: the hint leads to the one that crashed most, never to another."""
    events: list[Event] = [_steps(START_NS)]
    events += [fakes.crashed(START_NS + (i + 1) * SECOND, (40, 44, 44, 50, 44, 40)[i]) for i in range(6)]
    back = _problems([*events, _steps(START_NS + 10 * SECOND)])["crash-storm"]
    down = _problems([*events, _steps(START_NS + 10 * SECOND), fakes.crashed(START_NS + 11 * SECOND, 61)])

    assert (back.names, back.symptoms) == (44, 0)
    assert back.hint.startswith("open env 44:")
    assert (down["crash-storm"].names, down["crash-storm"].symptoms) == (61, 1)


@pytest.mark.parametrize("error", ["", "  "])
def test_a_crash_without_words_counts(error: str) -> None:
    """It is a finding, a status and a storm like any other."""
    events: list[Event] = [_steps(START_NS)]
    one = _held([*events, fakes.crashed(START_NS + SECOND, 3, error)])
    (item,) = one.assessment.findings.values()
    storm = _problems([*events, *(fakes.crashed(START_NS + i * SECOND, 32 + i, error) for i in range(1, 7))])

    assert (item.problem.code, item.problem.subject, item.problem.message) == (
        "env-crashed",
        "3",
        "crashed at step 12",
    )
    assert one.anomalies.status(3) == "crashed"
    assert set(storm) == {"crash-storm"}


def test_a_cull_storm_is_about_its_lane() -> None:
    """Nine culls over four envs where there was hardly one: with the usual rate and the failing gate."""
    events: list[Event] = [_steps(START_NS), _cull(START_NS + SECOND, 7)]
    start = START_NS + 200 * SECOND
    for i, env_id in enumerate([9, 9, 12, 9, 30, 9, 3, 9, 12]):
        events += [
            GateEvaluated(
                at=start + i * SECOND, env_id=env_id, slot="s", seed_id="s", gate="G2", passed=False,
                checks_failed=("gradient ratio",),
            ),
            _cull(start + i * SECOND, env_id),
        ]  # fmt: skip
    problem = _problems([*events, _steps(start + 10 * SECOND)])["cull-storm"]

    assert problem.message == "cull storm: 9 culls in 60s over 4 envs (usual below 1.6)"
    assert (problem.subject, problem.severity) == ("gpu0", "warning")
    assert problem.hint == "gate G2 fails on gradient ratio"


@pytest.mark.parametrize("every_s", [2, 10])
def test_a_steady_rate_of_culls_is_no_storm(every_s: int) -> None:
    """However many there are: they are what is usual, and fall on all envs alike."""
    events: list[Event] = [_steps(START_NS)]
    events += [_cull(START_NS + i * every_s * SECOND, (7 * i) % 64) for i in range(300 // every_s)]

    assert _problems([*events, _steps(START_NS + 300 * SECOND)]) == {}


def test_a_policy_that_culls_twice_as_much_is_no_storm() -> None:
    """What the shared policy learns comes over all envs alike."""
    events: list[Event] = [_steps(START_NS)]
    events += [_cull(START_NS + i * SECOND, (7 * i) % 64) for i in range(200)]
    events += [_cull(START_NS + 200 * SECOND + i * SECOND // 2, (7 * i) % 64) for i in range(120)]

    assert _problems([*events, _steps(START_NS + 260 * SECOND)]) == {}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("begins_s", [20, 50, 100, 200])
@pytest.mark.parametrize("every_s", [1, 3, 6])
def test_even_culls_that_begin_in_a_young_run_are_no_storm(begins_s: int, every_s: int) -> None:
    """Seeds become old enough to be culled: a past with none of them gives no rate, at any moment after."""
    for until in range(15, 150, 15):
        culls = range(begins_s, begins_s + until, every_s)
        events: list[Event] = [_steps(START_NS)]
        events += [_cull(START_NS + second * SECOND, (7 * second) % 64) for second in culls]

        assert _problems([*events, _steps(START_NS + (begins_s + until) * SECOND)]) == {}


def _gated(at: int, env_id: int) -> list[Event]:
    gate = GateEvaluated(
        at=at, env_id=env_id, slot="s", seed_id=f"s{at}", gate="G2", passed=False, checks_failed=("health",)
    )
    return [gate, _cull(at, env_id)]


@pytest.mark.parametrize("usual_s", [120, 60])
def test_a_few_envs_at_ten_times_their_culls_are_named(usual_s: int) -> None:
    """Four of a lane's thirty-two, their gates failing; the others of the lane go on as before."""
    events: list[Event] = [_steps(START_NS)]
    for env_id in range(64):
        first = (37 * env_id) % usual_s
        events += [_cull(START_NS + s * SECOND, env_id) for s in range(first, 352, usual_s)]
    for env_id in (3, 9, 12, 30):
        first = 300 + env_id % 5
        events += [
            event for s in range(first, 352, usual_s // 10) for event in _gated(START_NS + s * SECOND, env_id)
        ]
    events.sort(key=lambda event: event.at)
    found = _problems([*events, _steps(START_NS + 352 * SECOND)])

    assert "4 of 64 envs degraded" in found["env-degraded"].message
    assert _problems([e for e in events if e.at < START_NS + 300 * SECOND]) == {}


def test_envs_slow_with_their_throttled_lane_are_its_symptoms() -> None:
    """One finding about the lane counts them; none of them is stalled, none has a finding."""
    times = [0.01] * 32 + [0.05] * 32
    events: list[Event] = []
    for i in range(6):
        at = START_NS + i * SECOND
        events += [
            _steps(at, times),
            lane_readings(
                at, ["gpu0", "gpu1"], throttle=[None, "thermal"], utilization=[0.5, 0.97],
                power_w=[400, 388], power_limit_w=[700, 700],
                clock_hz=[1980e6, 1148e6], clock_max_hz=[1980e6, 1980e6],
            ),
        ]  # fmt: skip
    judged = _held(events)
    (item,) = judged.assessment.findings.values()

    assert item.problem.code == "thermal-throttle"
    assert item.problem.message == "thermal throttle, clock at 58% of max; 32 slow envs"
    assert (item.problem.severity, item.problem.symptoms) == ("critical", 32)
    assert {judged.anomalies.status(row) for row in range(64)} == {"ok"}
    assert judged.anomalies.reasons(40) == ("slow with their lane",)
    assert judged.bounds["gpu0"].state == "SYNC-BOUND"


def test_a_loader_that_runs_dry_is_one_finding() -> None:
    """All lanes wait for the one host: the finding is about it."""
    host = {"overwatch.host.loader.depth": 0.0, "overwatch.host.loader.limit": 8.0}
    events: list[Event] = [lane_readings(START_NS, ["gpu0", "gpu1"], utilization=[0.3, 0.4])]
    events.append(Measured(at=START_NS, scope=Scope.HOST, values=scalars(host)))
    problem = _problems(events)["io-starvation"]

    assert (problem.scope, problem.symptoms) == ("host", 2)
    assert problem.message == "io starvation: loader 0/8; 2 lanes wait"


def test_a_stock_foreign_run_has_no_finding_from_its_first_update() -> None:
    """Undefined values of the first updates, equal returns, few columns: nothing is wrong with that."""
    nan = float("nan")
    events: list[Event] = [
        fakes.policy(START_NS + i * SECOND, index=i, explained_variance=nan if i < 3 else 0.02 * i,
                     **{"return": nan if i < 2 else 20.0 + i}, kl_divergence=0.008, clip_fraction=0.1,
                     policy_loss=-0.01, value_loss=40.0 - i, learning_rate=3e-4)
        for i in range(30)
    ]  # fmt: skip
    for cut in range(1, len(events) + 1):
        assert _problems(events[:cut]) == {}
