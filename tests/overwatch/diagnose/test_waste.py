"""GPU-seconds in which nothing ran are counted by the bound that held."""

import pytest

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.events import Event
from overwatch.projection import project
from overwatch.snapshot import View
from overwatch.state import apply, new_run
from overwatch.state.machines import Rested
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import lane_readings


def _wasted(events: list[Event]) -> dict[str, float]:
    """By bound, over ticks of a second; through a checkpoint at each of them."""
    reported = fakes.records(events)
    state, before = new_run(reported[0]), Assessment()
    for record in reported:
        apply(state, record, record.event.at)
        judged = assess(state, before, record.event.at)
        before = load(dump(judged.assessment))
    shown = project(state, judged, View())
    assert shown.counters["gpu_idle"] == pytest.approx(sum(shown.system.idle_gpu_s.values()))
    return shown.system.idle_gpu_s


def _busy(seconds: range, *utilization: float) -> list[Event]:
    lanes = [f"gpu{number}" for number in range(len(utilization))]
    return [lane_readings(START_NS + second * SECOND, lanes, utilization=utilization) for second in seconds]


def test_rest_is_counted_over_lanes_by_bound() -> None:
    """A lane that rests for a hundred seconds and one that half rests: 150 GPU-seconds."""
    wasted = _wasted(_busy(range(101), 0.0, 0.5))

    assert wasted["idle"] == pytest.approx(100)
    assert wasted["unknown"] == pytest.approx(50)


def test_every_bound_is_there_from_the_first_snapshot() -> None:
    """A counter that comes into being with its first second would miss it."""
    wasted = _wasted([fakes.started(START_NS)])

    assert wasted == {state.label: 0.0 for state in BoundState}


def test_a_hole_between_readings_is_nobody_s_rest() -> None:
    """For five minutes nobody knows what the lane did."""
    wasted = _wasted(_busy(range(11), 0.0) + _busy(range(311, 321), 0.0))

    assert sum(wasted.values()) == pytest.approx(19)


@pytest.mark.parametrize("utilization", [-1.0, 2.0])
def test_a_share_beyond_its_bounds_is_cut(utilization: float) -> None:
    """Rest and work together are the time that passed."""
    rested = Rested()
    for second in range(1, 12):
        rested.note(START_NS + second * SECOND, utilization)

    assert rested.idle_s + rested.busy_s == pytest.approx(10)
    assert min(rested.idle_s, rested.busy_s) == 0
