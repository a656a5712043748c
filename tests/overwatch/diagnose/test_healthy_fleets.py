"""A healthy fleet has less than one env that is not ok, however large it is and however luck is spread."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from overwatch.diagnose.anomaly import AnomalyLimits, score_envs
from overwatch.diagnose.factors import fleet_fell
from overwatch.diagnose.fleet import fleet_of
from overwatch.events import CurriculumChanged, Record
from overwatch.state import RunState, apply
from overwatch.state.arrays import Floats, Ints
from overwatch.state.env_tables import RETURNS
from tests import fakes
from tests.fakes import START_NS

DRAWS = {64: 100, 1024: 25, 16384: 4}
Luck = Callable[[np.random.Generator, int], Floats]


def _normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(size=(n, RETURNS))


def _heavy_tails(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_t(3, size=(n, RETURNS))


def _rare_reward(rng: np.random.Generator, n: int) -> Floats:
    return (rng.random((n, RETURNS)) < 0.05).astype(np.float64)


def _nearly_solved(rng: np.random.Generator, n: int) -> Floats:
    return (rng.random((n, RETURNS)) < 0.95).astype(np.float64)


def _staggered(rng: np.random.Generator, n: int) -> Floats:
    """A policy that learns, seen by envs that are up to three episodes behind one another."""
    behind = rng.random((n, 1)) * 3
    return 0.3 * (np.arange(RETURNS) - behind) + rng.normal(size=(n, RETURNS))


def _curriculum(behind: float) -> Luck:
    """A harder task for all, `behind` episodes ago at the usual pace; envs reach it at their own."""

    def luck(rng: np.random.Generator, n: int) -> Floats:
        since = np.floor(behind * rng.uniform(0.7, 1.3, n) + rng.random(n))
        harder = np.arange(RETURNS) >= RETURNS - since[:, None]
        return rng.normal(size=(n, RETURNS)) - 8.0 * harder

    return luck


def _log_normal(rng: np.random.Generator, n: int) -> Floats:
    spread: Floats = np.exp(rng.normal(size=(n, RETURNS)))
    return spread


FLEETS: dict[str, Luck] = {
    "normal": _normal,
    "heavy tails": _heavy_tails,
    "log-normal": _log_normal,
    "rare reward": _rare_reward,
    "nearly solved": _nearly_solved,
    "staggered resets": _staggered,
    **{f"curriculum {behind} ago": _curriculum(behind) for behind in (0.5, 1.5, 3.0, 10.0)},
}


def _state(returns: Floats, reported: int | None = None) -> RunState:
    """A run whose envs finished these episodes, oldest first, shape (n, k).

    A change of the curriculum is reported before episode `reported`.
    """
    state = fakes.folded([fakes.started(START_NS)])
    n = returns.shape[0]
    rows = state.envs.rows(np.arange(n))
    for episode in range(returns.shape[1]):
        if episode == reported:
            change = CurriculumChanged(at=START_NS, name="level")
            apply(state, Record(origin=fakes.ORIGIN, event=change, seq=2), START_NS)
        state.envs.finish_episodes(rows, returns[:, episode], START_NS)
    state.envs.touch(rows, START_NS)
    return state


def _draws(luck: Luck, n: int) -> Iterator[Floats]:
    """Returns of fleets of n envs."""
    return (luck(np.random.default_rng([n, draw]), n) for draw in range(DRAWS[n]))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("n", DRAWS)
@pytest.mark.parametrize("name", FLEETS)
def test_a_healthy_fleet_has_less_than_one_env_that_is_not_ok(name: str, n: int) -> None:
    """The mean over many draws of returns that differ by luck alone, from the fifth episode on."""
    found = dict.fromkeys((5, 6, 9, RETURNS), 0)
    for returns in _draws(FLEETS[name], n):
        for seen in found:
            fleet = fleet_of(_state(returns[:, -seen:]))
            found[seen] += score_envs(fleet, AnomalyLimits()).offenders().size

    assert max(found.values()) / DRAWS[n] < 1, found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seen", [5, 9, RETURNS])
@pytest.mark.parametrize("name", [name for name in FLEETS if not name.startswith("curriculum")])
def test_a_healthy_fleet_has_not_fallen(name: str, seen: int) -> None:
    """No collapse of the policy is found where returns are as they were."""
    fleets = (fleet_of(_state(returns[:, -seen:])) for returns in _draws(FLEETS[name], 64))
    falls = [fleet_fell(fleet.returns, AnomalyLimits()) for fleet in fleets if fleet.returns]

    assert not any(falls)


@pytest.mark.parametrize("seen", range(5, 15))
def test_a_lone_env_that_just_began_has_not_fallen(seen: int) -> None:
    """A handful of episodes of one env is no measure of its own luck."""
    lone = np.random.default_rng(seen).normal(size=(200, seen))
    known = [returns for row in lone if (returns := fleet_of(_state(row[None])).returns)]

    assert len(known) == 200
    assert [fleet_fell(returns, AnomalyLimits()) for returns in known] == [None] * 200


@pytest.mark.parametrize("n", DRAWS)
def test_envs_of_all_ages_are_compared_with_one_another(n: int) -> None:
    """Young envs beside old ones: nobody stands out but the one that falls, in its fifth episode."""
    healthy = np.random.default_rng(n).normal(size=(n, RETURNS))
    fallen = healthy.copy()
    fallen[3, 1:5] = -60.0

    for returns, found in ((healthy, []), (fallen, [3])):
        state = _state(returns[:, :5])
        old = np.arange(n // 2, n)
        for episode in range(5, RETURNS):
            state.envs.finish_episodes(old, returns[old, episode], START_NS)
        assert score_envs(fleet_of(state), AnomalyLimits()).offenders().tolist() == found


def test_four_episodes_are_too_few_to_judge() -> None:
    """Before its fifth episode an env is given time, however little it earns."""
    returns = np.random.default_rng(1).normal(size=(64, 4))
    returns[5] = -60.0

    assert fleet_of(_state(returns)).returns is None


@pytest.mark.parametrize("later", [0, 1, 4, 9, 10, 12, 20])
@pytest.mark.parametrize("n", DRAWS)
def test_a_change_of_the_curriculum_is_no_fall(n: int, later: int) -> None:
    """However long ago it was sent, a harder task is neither a collapse of the policy nor an env's fault.

    Envs reach the new task one or two episodes after it is sent.
    """
    rng = np.random.default_rng([n, later])
    reported = RETURNS - later
    harder = np.arange(RETURNS) >= reported + 1 + (rng.random((n, 1)) < 0.3)
    fleet = fleet_of(_state(rng.normal(size=(n, RETURNS)) - 8.0 * harder, reported))

    assert fleet.returns is None or fleet_fell(fleet.returns, AnomalyLimits()) is None
    assert score_envs(fleet, AnomalyLimits()).offenders().size == 0


@pytest.mark.parametrize("n", DRAWS)
def test_when_all_fall_it_is_the_policy_and_no_env(n: int) -> None:
    """Returns that drop for the whole fleet flag nobody and are one fall."""
    returns = np.random.default_rng(n).normal(size=(n, RETURNS))
    returns[:, -6:] -= 8.0
    fleet = fleet_of(_state(returns))

    assert fleet.returns is not None
    assert score_envs(fleet, AnomalyLimits()).offenders().size == 0
    assert fleet_fell(fleet.returns, AnomalyLimits()) is not None


@pytest.mark.parametrize("n", DRAWS)
@pytest.mark.parametrize("mean", [0.02, 0.3, 4.0, 80.0])
def test_counts_by_chance_flag_less_than_one_env(mean: float, n: int) -> None:
    """Culls that fall on envs by chance are nobody's fault."""
    found = 0
    for draw in range(DRAWS[n]):
        state = _state(np.ones((n, RETURNS)))
        counts: Ints = np.random.default_rng([n, draw]).poisson(mean, n)
        state.envs.culls.add(np.repeat(np.arange(n), counts), START_NS)
        found += score_envs(fleet_of(state), AnomalyLimits()).offenders().size

    assert found / DRAWS[n] < 1


@pytest.mark.parametrize("n", DRAWS)
@pytest.mark.parametrize("share", [0.3, 0.9, 0.99, 0.999])
def test_actions_repeated_by_chance_flag_less_than_one_env(share: float, n: int) -> None:
    """However often the policy does the same, the longest of many lengths by luck is nobody's fault."""
    found = 0
    for draw in range(DRAWS[n]):
        state = _state(np.ones((n, RETURNS)))
        state.envs.actions.streak[:n] = np.random.default_rng([n, draw]).geometric(1 - share, n)
        found += score_envs(fleet_of(state), AnomalyLimits()).offenders().size

    assert found / DRAWS[n] < 1
