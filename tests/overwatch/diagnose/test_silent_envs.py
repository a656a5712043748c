"""An env is silent by its own rhythm: a fleet that reports rarely is well, an env that stopped is found."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.events import Event
from overwatch.fold import FAST_NS
from overwatch.state import RunState, apply, new_run
from tests import fakes
from tests.calibration.corpus import Case, Class, run
from tests.fakes import SECOND, START_NS

N = 16
IDS = list(range(N))


def _stalled(events: list[Event]) -> set[tuple[str, str | None]]:
    """Codes and subjects of every finding about envs that opened, judged ten times a second."""
    state: RunState | None = None
    assessment, tick, found = Assessment(), START_NS, set()
    for record in fakes.records(sorted(events, key=lambda event: event.at)):
        while state is not None and tick < record.event.at:
            assessment = assess(state, assessment, tick).assessment
            opened = (item.problem for item in assessment.findings.values())
            found |= {(one.code, one.subject) for one in opened if one.code.startswith("env-")}
            tick += FAST_NS
        state = state or new_run(record)
        apply(state, record, record.event.at)
    return found


def _at(second: float) -> int:
    return START_NS + int(second * SECOND)


def _reports(seconds: float, every_s: float, until: Callable[[int], float] | None = None) -> Iterator[Event]:
    """Each env reports its numbers every so often, each at its own moment; `until` a second that it has."""
    for env in IDS:
        moment = every_s * env / N
        while moment < seconds and (until is None or moment < until(env)):
            yield fakes.envs(_at(moment), [env], reward=[0.1], step_time=[0.01 + 0.0001 * env])
            moment += every_s


def _episodes(seconds: float, mean_s: Callable[[float], float], stop: dict[int, float]) -> Iterator[Event]:
    """Each env reports only the ends of its episodes, of very different lengths."""
    dice = np.random.default_rng(7)
    for env in IDS:
        moment = 0.0
        while True:
            moment += mean_s(moment) * (0.2 + dice.exponential(0.8))
            if moment >= min(seconds, stop.get(env, seconds)):
                break
            yield fakes.ended(_at(moment), [env], [1.0])


@pytest.mark.parametrize("every_s", [0.5, 3.0, 12.0, 40.0])
def test_a_fleet_that_reports_rarely_is_not_silent(every_s: float) -> None:
    """Whatever the interval, from the first report on."""
    assert _stalled(list(_reports(20 * every_s, every_s))) == set()


@pytest.mark.parametrize("every_s", [0.5, 3.0, 12.0])
def test_an_env_that_stops_is_silent_within_three_of_its_intervals(every_s: float) -> None:
    """And the others, which report on, are not."""
    stops = 10 * every_s
    found = _stalled(
        list(_reports(stops + max(10.0, 4 * every_s), every_s, lambda env: stops if env == 3 else 1e9))
    )

    assert found == {("env-stalled", "3")}


def test_a_fleet_of_which_only_episodes_are_known_is_not_silent() -> None:
    """Episodes of five seconds, of very different lengths."""
    assert _stalled(list(_episodes(200, lambda _: 5.0, {}))) == set()


def test_a_fleet_whose_episodes_grow_is_not_silent() -> None:
    """From one second to thirty while it learns."""
    assert _stalled(list(_episodes(300, lambda moment: 1.0 + moment / 10, {}))) == set()


def test_an_env_whose_episodes_end_no_more_is_silent() -> None:
    """Far beyond its longest episode."""
    found = _stalled(list(_episodes(200, lambda _: 1.0, {5: 60.0})))

    assert found == {("env-stalled", "5")}


def test_a_pause_of_all_teaches_no_rhythm() -> None:
    """The fleet learns for half a minute after each rollout; an env that stops is found all the same."""
    events: list[Event] = []
    for start in range(0, 200, 40):
        for step in range(100):
            at = start + step / 10
            envs = [env for env in IDS if env != 3 or at < 162]
            events.append(fakes.envs(_at(at), envs, reward=[0.1] * len(envs)))
    assert _stalled(events) == {("env-stalled", "3")}
    assert _stalled([event for event in events if event.at < _at(160)]) == set()


@pytest.mark.parametrize("rate_hz", [0.1, 0.25])
def test_a_simulated_fleet_of_long_steps_is_healthy(rate_hz: float) -> None:
    """A step each four or ten seconds: no silence, and no loss of throughput between two steps and three."""
    case = Case(name="", kind=Class.HARMLESS, seconds=200, seed=5, slots=0, rate_hz=rate_hz)

    assert run(case).before == ()
