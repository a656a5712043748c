"""Views that sort and filter the board: which envs, in which order, and what is counted."""

import math

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.events import Event
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import SECOND, START_NS


def _events() -> list[Event]:
    at = START_NS
    return [
        fakes.started(at, n_envs=6, slots=("r0c0", "r0c1"), blueprints={"mlp_small": "ms"}),
        fakes.envs(
            at + SECOND, range(6), 1, lane=["gpu0", "gpu1", "gpu0", "gpu1", "gpu0", "gpu10"],  # type: ignore[list-item]  # lanes are words
            metric=[0.5, 0.9, 0.1, 0.7, 0.3, math.nan], step_time=[0.1, 0.2, 0.1, 0.1, 0.05, 0.1],
        ),
        fakes.slots(
            at + SECOND, [0, 0, 1, 2], ["r0c0", "r0c1", "r0c0", "r0c1"],
            ["pruned", "training", "training", "pruned"],
        ),
        fakes.acted(at + SECOND, [0, 1, 2], ["wait", "prune", "wait"], [None, "r0c0", None]),
        fakes.ended(at + 2 * SECOND, [0, 1, 2, 3], [4.0, 2.0, 3.0, 1.0]),
        fakes.crashed(at + 2 * SECOND, 3, "CUDA error 700"),
    ]  # fmt: skip


def _seen(**view: object) -> Snapshot:
    state = fakes.folded(_events())
    state.lane_ids.nodes |= {"gpu0": "h1", "gpu1": "h1", "gpu10": "h2"}
    state.lane_ranks |= {"gpu0": 0, "gpu1": 1, "gpu10": 10}
    tick = state.last_stamp + SECOND // 2
    return project(state, assess(state, Assessment(), tick), View(**view))  # type: ignore[arg-type]  # a test's own fields


def _ids(snapshot: Snapshot) -> list[int]:
    return [env.env_id for env in snapshot.envs]


@pytest.mark.parametrize(
    ("sort", "descending", "first"),
    [
        ("env", False, [0, 1, 2, 3, 4, 5]),
        ("env", True, [5, 4, 3, 2, 1, 0]),
        ("return", False, [3, 1, 2, 0]),
        ("return", True, [0, 2, 1, 3]),
        ("metric", True, [1, 3, 0, 4, 2, 5]),
        ("fps", False, [1]),
        ("anomaly", True, [3]),
    ],
)
def test_rows_come_in_the_order_asked_for(sort: str, descending: bool, first: list[int]) -> None:  # noqa: FBT001 (a row)
    """Over all lanes; an env without the value comes last, whichever way round."""
    snapshot = _seen(sort=sort, descending=descending, grouped=False)

    assert _ids(snapshot)[: len(first)] == first
    assert snapshot.board.sort == sort
    assert snapshot.board.direction == ("desc" if descending else "asc")


def test_lanes_stand_in_the_order_of_their_first_row() -> None:
    """Grouped, each lane's rows are together and sorted within it."""
    snapshot = _seen(sort="return", descending=True)

    assert [group.gpu_id for group in snapshot.board.groups] == ["gpu0", "gpu1", "gpu10"]
    assert _ids(snapshot) == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("gpu=0", {0, 2, 4}),
        ("gpu=1", {1, 3}),
        ("gpu=gpu10", {5}),
        ("node=h1", {0, 1, 2, 3, 4}),
        ("!node=h1", {5}),
        ("rank=1", {1, 3}),
        ("rank=0,10", {0, 2, 4, 5}),
        ("status=crashed", {3}),
        ("!status=ok", {3}),
        ("env=1,3-4", {1, 3, 4}),
        ("score>5", {3}),
        ("metric>=0.5", {0, 1, 3}),
        ("return<2.5", {1, 3}),
        ("stage=pruned", {0, 2}),
        ("stage=pruned slot=r0c0", {0}),
        ("slot=r0c1 !stage=pruned", {0}),
        ("!stage=pruned", {1, 3, 4, 5}),
        ("stage=training gpu=1", {1}),
        ("cuda", {3}),
        ("prune", {1}),
        ("5", {5}),
        ("nothing-like-it", set()),
    ],
)
def test_a_filter_shows_what_passes_all_its_terms(text: str, ids: set[int]) -> None:
    """Rows, groups and counts are of what passes; the fleet's size stays."""
    snapshot = _seen(filter=text)

    assert set(_ids(snapshot)) == ids
    assert snapshot.board.filter == text
    assert snapshot.board.matched == len(ids)
    assert sum(snapshot.board.counts.values()) == len(ids)
    assert sum(group.n_envs for group in snapshot.board.groups) == len(ids)
    assert snapshot.run.n_envs == 6


def test_a_filter_that_cannot_be_read_hides_nothing() -> None:
    """And the board does not claim that one is applied."""
    snapshot = _seen(filter="stge=pruned")

    assert len(snapshot.envs) == 6
    assert (snapshot.board.filter, snapshot.board.matched) == (None, None)


def test_rows_are_cut_after_they_were_sorted() -> None:
    """Two rows of a sorted view are its first two; the rest is counted as hidden."""
    snapshot = _seen(sort="return", rows=2)

    assert _ids(snapshot) == [0, 2]
    assert sum(group.hidden for group in snapshot.board.groups) == 4
