"""How long steps and updates take on each lane: by nearest rank, over envs and time."""

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.events import Event, PhaseEnded
from overwatch.projection import project
from overwatch.snapshot import Spread, View
from overwatch.state import RunState
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import lane_readings


def _stepping(times: list[float], lanes: list[str], seconds: int = 20) -> list[Event]:
    """Envs that take these times, ten steps a second."""
    reported: list[Event] = []
    for step in range(seconds * 10):
        at = START_NS + step * SECOND // 10
        reported.append(fakes.envs(at, range(len(times)), index=step, step_time=times, lane=lanes))  # type: ignore[arg-type]  # lanes are words
        if step % 10 == 0:
            names = sorted(set(lanes))
            reported.append(lane_readings(at, names, utilization=[0.5] * len(names)))
    return reported


def _lanes(state: RunState) -> dict[str, tuple[Spread | None, Spread | None]]:
    judged = assess(state, Assessment(), state.last_stamp)
    gpus = project(state, judged, View()).system.gpus
    return {lane.gpu_id: (lane.step_s, lane.update_s) for lane in gpus}


def test_steps_of_each_lane_have_a_median_and_a_slow_end() -> None:
    """Of twenty envs two are slow: the median is not, the 95th percentile is."""
    times = [0.01] * 18 + [0.05, 0.05] + [0.02] * 20
    found = _lanes(fakes.folded(_stepping(times, ["gpu0"] * 20 + ["gpu1"] * 20)))

    assert found["gpu0"][0] == Spread(p50=pytest.approx(0.01), p95=pytest.approx(0.05))
    assert found["gpu1"][0] == Spread(p50=pytest.approx(0.02), p95=pytest.approx(0.02))


def test_updates_of_a_rank_are_those_of_its_lane() -> None:
    """From the end of one to that of the next, one of ten a slow one."""
    reported = _stepping([0.01] * 4, ["gpu0"] * 4)
    at = START_NS
    for number in range(12):
        at += (3 if number == 5 else 1) * SECOND
        reported.append(PhaseEnded(at=at, phase="update", duration_s=0.4))
    reported.sort(key=lambda event: event.at)

    assert _lanes(fakes.folded(reported))["gpu0"][1] == Spread(p50=1.0, p95=3.0)
