"""What is usual among envs is worked out once a second, and no env is judged by what is over."""

import numpy as np
import pytest

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import Event
from overwatch.projection import project, project_views
from overwatch.snapshot import View
from overwatch.state import RunState, apply
from tests import fakes
from tests.fakes import SECOND, START_NS

N = 16
TICK = SECOND // 10


def _steps(at: int, seconds: list[float]) -> Event:
    return fakes.envs(at, range(N), step_time=seconds, reward=[1.0] * N)


def _usual(times: float = 1.0) -> list[float]:
    return [times * (0.1 + 0.001 * env) for env in range(N)]


def _report(state: RunState, before: Judged | None, at: int, seconds: list[float], seq: int) -> Judged:
    """One more step of all envs, judged at the tick after it."""
    (record,) = fakes.records([_steps(at, seconds)], first_seq=seq)
    apply(state, record, at)
    return assess(state, Assessment() if before is None else before.assessment, at + TICK)


def test_middles_hold_within_a_second_and_follow_in_the_next() -> None:
    """The lane's median rate is that of the second's beginning."""
    state = fakes.folded([fakes.started(START_NS)])
    judged = _report(state, None, START_NS, _usual(), 2)
    rates = []
    for place in range(1, 11):
        judged = _report(state, judged, START_NS + place * TICK, _usual(2.0), 2 + place)
        rates.append(project(state, judged, View()).board.groups[0].median_fps)

    first = np.median([1 / step for step in _usual()])
    assert rates[0] == pytest.approx(first)
    assert rates[-1] == pytest.approx(first / 2)
    assert set(rates) == {rates[0], rates[-1]}


def test_envs_that_all_slow_down_at_once_are_not_called_slow() -> None:
    """Six times slower than the second began, and as slow as all others: at no tick is one stalled."""
    state = fakes.folded([fakes.started(START_NS)])
    judged = _report(state, None, START_NS, _usual(), 2)
    for place in range(1, 15):
        judged = _report(state, judged, START_NS + place * TICK, _usual(6.0), 2 + place)
        assert judged.anomalies.offenders().size == 0


def test_one_env_that_slows_down_is_called_slow_at_once() -> None:
    """Within the second in which all were alike."""
    state = fakes.folded([fakes.started(START_NS)])
    judged = _report(state, None, START_NS, _usual(), 2)
    judged = _report(state, judged, START_NS + TICK, [*_usual()[:-1], 0.9], 3)

    assert judged.anomalies.offenders().tolist() == [N - 1]


def test_views_of_one_tick_are_what_each_would_be_alone() -> None:
    """What they share is made once, and is the same."""
    state = fakes.folded([fakes.started(START_NS)])
    judged = _report(state, None, START_NS, [*_usual()[:-1], 0.9], 2)
    views = (
        View(),
        View(rows=3),
        View(sort="env", grouped=False),
        View(filter="status=stalled"),
        View(env_id=3),
    )

    assert project_views(state, judged, views) == {view: project(state, judged, view) for view in views}
