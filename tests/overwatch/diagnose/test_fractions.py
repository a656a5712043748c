"""Any fraction of a fleet that goes wrong is found, and named; a fleet that has luck is left alone."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import Column, Event
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import SECOND, START_NS

N = 32
Second = Callable[[int], list[Event]]


def at(second: float) -> int:
    """A producer's time."""
    return START_NS + int(second * SECOND)


def judged(seconds: int, happens: Second, n: int = N) -> Iterator[tuple[int, Judged]]:
    """A fleet of n envs that an update a second learns from, judged twice a second."""
    state: RunState = fakes.folded([fakes.started(START_NS, n_envs=n)])
    before = Assessment()
    for second in range(1, seconds):
        events = [fakes.policy(at(second), second, entropy=0.5 + 0.01 * (second % 3)), *happens(second)]
        for number, record in enumerate(fakes.records(events)):
            apply(state, fakes.records([record.event], first_seq=second * 1000 + number)[0], record.event.at)
        for half in (0.1, 0.6):
            found = assess(state, before, at(second + half))
            before = found.assessment
        yield second, found


def named(found: Judged) -> dict[str, str]:
    """Messages of what is open, by code."""
    items = found.assessment.findings.values()
    return {item.problem.code: item.problem.message for item in items if item.cleared_at is None}


def offenders(found: Judged) -> set[int]:
    """Envs that are not ok."""
    return set(found.anomalies.offenders().tolist())


class Episodes:
    """Envs whose episodes earn 180 or so each ten seconds; from some second on sick ones end each step."""

    def __init__(self, seed: int, sick: set[int], *, since: int = 150, earns: float = 0.9) -> None:
        self.dice = np.random.default_rng(seed)
        self.sick, self.since, self.earns = sick, since, earns

    def __call__(self, second: int) -> list[Event]:
        """What they report in a second."""
        events: list[Event] = [fakes.envs(at(second), range(N), second, reward=[0.1] * N)]
        for env in range(N):
            ill = env in self.sick and second >= self.since
            if ill:
                earned = self.earns + 0.01 * self.dice.normal()
                events += [fakes.ended(at(second + n / 4), [env], [earned]) for n in range(4)]
            elif (second + env) % 10 == 0:
                events.append(fakes.ended(at(second), [env], [180.0 + 15 * self.dice.normal()]))
        return events


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("count", [1, 5, 12, 20, 29])
def test_any_number_of_envs_that_reset_at_once_is_found(count: int, seed: int) -> None:
    """All of them within half a minute, for as long as it lasts, and nobody else."""
    sick = set(np.random.default_rng(seed).choice(N, count, replace=False).tolist())
    seen = dict(judged(270, Episodes(seed, sick)))

    assert not any(offenders(found) for second, found in seen.items() if second < 150)
    assert offenders(seen[180]) == offenders(seen[269]) == sick
    assert "env-degraded" in named(seen[180])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_policy_that_collapsed_is_no_fault_of_envs(seed: int) -> None:
    """All fall, those with long episodes last: no env is named."""
    seen = list(judged(270, Episodes(seed, set(range(N)))))

    assert not any(offenders(found) for _, found in seen)


@pytest.mark.parametrize("count", [4, 20])
@pytest.mark.parametrize("earns", [0.9, -1.0])
def test_envs_that_reset_at_once_from_the_first_episode_on_are_found(count: int, earns: float) -> None:
    """They have no past to fall from, and may earn more than all that play: -1 of an episode against -200."""
    dice = np.random.default_rng(count)

    def happens(second: int) -> list[Event]:
        events: list[Event] = [fakes.envs(at(second), range(N), second, reward=[0.1] * N)]
        for env in range(N):
            if env < count:
                events += [_ended(second + n / 4, env, earns, 1) for n in range(4)]
            elif (second + env) % 10 == 0:
                events.append(_ended(second, env, -200.0 + 10 * dice.normal(), 200))
        return events

    *_, (_, last) = judged(90, happens)

    assert offenders(last) == set(range(count))


def _ended(second: float, env: int, earned: float, steps: int) -> Event:
    event = fakes.ended(at(second), [env], [earned])
    return msgspec.structs.replace(event, length=Column.of([steps]))


@pytest.mark.parametrize("count", [1, 5, 12, 20, 28])
@pytest.mark.parametrize("slow", [True, False], ids=["slow", "silent"])
def test_any_number_of_envs_that_step_slowly_or_not_at_all_is_found(count: int, slow: bool) -> None:  # noqa: FBT001 a case
    """From the second minute on, ten times as slow as before, or silent while the others report on."""
    dice = np.random.default_rng(count)

    def happens(second: int) -> list[Event]:
        steps, ill = 0.01 * (1 + 0.1 * dice.random(N)), second > 60
        steps[:count] *= 10 if ill else 1
        reports = range(count if ill and not slow else 0, N)
        return [fakes.envs(at(second), reports, second, step_time=steps[reports].tolist())]

    *_, (_, last) = judged(90, happens)

    assert offenders(last) == set(range(count))


@pytest.mark.parametrize(("every_s", "from_s"), [(1, 61), (4, 60)])
def test_a_fleet_that_falls_silent_while_updates_go_on_is_found(every_s: int, from_s: int) -> None:
    """All of it: no env reports that others could be compared with."""

    def happens(second: int) -> list[Event]:
        reports = second % every_s == 0 and second < from_s
        return [fakes.envs(at(second), range(N), second, reward=[0.1] * N)] if reports else []

    seen = {second: named(found) for second, found in judged(90, happens)}

    assert not any(seen[second] for second in range(1, 64))
    assert "32 of 32 envs silent for" in seen[81]["env-stalled-many"]


def test_a_policy_that_learns_long_from_what_was_collected_is_well() -> None:
    """Envs report for ten seconds, then forty updates follow, again and again."""

    def happens(second: int) -> list[Event]:
        return [fakes.envs(at(second), range(N), second, reward=[0.1] * N)] if second % 50 < 10 else []

    assert not any(
        "env-stalled-many" in named(found) for second, found in judged(260, happens) if second > 70
    )


@pytest.mark.parametrize("count", [1, 4, 12, 24])
def test_envs_that_never_report_are_found(count: int) -> None:
    """Those of the start record; where an operator removed them they are not missed."""

    def happens(second: int) -> list[Event]:
        return [fakes.envs(at(second), range(N - count), second, reward=[0.1] * (N - count))]

    *_, (_, last) = judged(45, happens)
    *_, (_, whole) = judged(45, happens, N - count)

    assert f"{count} of {N} envs" in named(last)["env-stalled-many"]
    assert "env-stalled-many" not in named(whole)
