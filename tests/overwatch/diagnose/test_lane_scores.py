"""A lane stands out when its envs do together: the envs' machinery, one level up."""

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import Event
from overwatch.projection import project
from overwatch.snapshot import View
from tests import fakes
from tests.fakes import START_NS

IDS = list(range(64))
LANES = [f"gpu{env // 16}" for env in IDS]


def _judged(*events: Event) -> Judged:
    steps = [0.01 + 0.0001 * (env % 7) for env in IDS]
    first = fakes.envs(START_NS, IDS, index=1, step_time=steps, lane=LANES)  # type: ignore[arg-type]  # lanes are words
    return assess(fakes.folded([first, *events]), Assessment(), START_NS + 1)


def _offenders(judged: Judged) -> dict[str, tuple[str, ...]]:
    return {name: lane.reasons for name, lane in judged.lanes.items() if lane.score > 0}


def test_like_lanes_do_not_stand_out() -> None:
    """Every lane has a score, and all are 0."""
    assert [lane.score for lane in _judged().lanes.values()] == [0.0] * 4


def test_crashes_together_are_the_lanes_matter_and_one_alone_is_not() -> None:
    """More than half of its envs is a hard fault, a few are graded; one is left to its env."""
    one = _judged(fakes.crashed(START_NS + 1, 3))
    few = _judged(*[fakes.crashed(START_NS + 1, env) for env in range(4)])
    most = _judged(*[fakes.crashed(START_NS + 1, env) for env in range(9)])

    assert _offenders(one) == {}
    assert _offenders(few) == {"gpu0": ("4 of 16 envs crashed",)}
    assert few.lanes["gpu0"].score <= 3.0
    assert (most.lanes["gpu0"].score, most.lanes["gpu0"].reasons) == (10.0, ("9 of 16 envs crashed",))


def test_crashes_all_over_the_fleet_are_no_lanes_matter() -> None:
    """Each lane has as many as the others."""
    judged = _judged(*[fakes.crashed(START_NS + 1, env) for env in IDS if env % 4 == 0])

    assert _offenders(judged) == {}


def test_a_lane_that_steps_slowly_stands_out() -> None:
    """With how much slower than the others."""
    steps = [0.02 if lane == "gpu3" else 0.01 + 0.0001 * env for env, lane in zip(IDS, LANES, strict=True)]
    judged = _judged(fakes.envs(START_NS + 1, IDS, index=2, step_time=steps))

    assert list(_offenders(judged)) == ["gpu3"]
    assert judged.lanes["gpu3"].reasons[0].startswith("steps 1.")


def test_the_snapshot_has_it_beside_the_lanes_envs() -> None:
    """In the group of its envs, and in none that has no lane."""
    events: list[Event] = [fakes.crashed(START_NS + 1, env) for env in range(9)]
    first = fakes.envs(START_NS, IDS, index=1, reward=[0.0] * 64, lane=[*LANES[:60], *["x"] * 4])  # type: ignore[list-item]  # lanes are words
    state = fakes.folded([first, *events, fakes.envs(START_NS + 2, [70], reward=[0.0])])
    groups = project(state, assess(state, Assessment(), START_NS + 3), View()).board.groups
    reported = {group.gpu_id: group.anomaly for group in groups}

    assert reported[None] is None
    assert reported["gpu0"] is not None
    assert reported["gpu0"].reasons == ("9 of 16 envs crashed",)
    assert reported["gpu1"] is not None
    assert reported["gpu1"].score == 0.0
