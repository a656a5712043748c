"""A window of the board: rows from a place on, equal to a slice of all of them."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.diagnose import Assessment, Judged, assess
from overwatch.projection import project
from overwatch.projection.board import SORTS
from overwatch.snapshot import Snapshot, View
from overwatch.state import RunState
from tests import fakes
from tests.fakes import SECOND, START_NS

FILTERS = ("", "status=ok", "gpu=1", "env=3-40 !gpu=2", "nothing-like-it")


@cache
def fleet(n: int) -> tuple[RunState, Judged]:
    """A run of so many envs on five lanes in any order, some of them crashed."""
    dice = np.random.default_rng(n)
    lanes = [f"gpu{lane}" for lane in dice.integers(0, 5, n)]
    values = {name: dice.normal(size=n).tolist() for name in ("reward", "metric")}
    events = [
        fakes.started(START_NS, n_envs=n),
        fakes.envs(START_NS + SECOND, range(n), 1, lane=lanes, **values),  # type: ignore[arg-type]  # lanes are words
        *(fakes.crashed(START_NS + SECOND, env_id) for env_id in range(0, n, 17)),
    ]
    state = fakes.folded(events)
    return state, assess(state, Assessment(), state.last_stamp + SECOND // 2)


def shown(n: int, **view: object) -> Snapshot:
    """What a view of that run shows."""
    return project(*fleet(n), View(**view))  # type: ignore[arg-type]  # a test's own fields


@given(
    sort=st.sampled_from(SORTS),
    descending=st.booleans(),
    text=st.sampled_from(FILTERS),
    grouped=st.booleans(),
    offset=st.integers(0, 220),
    rows=st.integers(0, 220),
)
def test_a_window_is_a_slice_of_all_rows(
    *, sort: str, descending: bool, text: str, grouped: bool, offset: int, rows: int
) -> None:
    """Whatever the order and the filter, grouped or not; head and groups show the same in each window."""
    view = {"sort": sort, "descending": descending, "filter": text, "grouped": grouped}
    whole, part = shown(200, rows=200, **view), shown(200, rows=rows, offset=offset, **view)

    assert part.envs == whole.envs[offset : offset + rows]
    assert (part.board.offset, part.board.total) == (offset, len(whole.envs))
    assert [group.gpu_id for group in part.board.groups] == [group.gpu_id for group in whole.board.groups]
    assert sum(group.n_envs - group.hidden for group in part.board.groups) == len(part.envs)
    assert part.board.counts == whole.board.counts


def test_without_an_offset_the_rows_are_the_worst() -> None:
    """As a terminal wants them: few rows of all lanes, of which the board states how many there are."""
    few = shown(200, rows=12)

    assert {env.env_id for env in few.envs} == {env.env_id for env in shown(200, rows=12, grouped=False).envs}
    assert (few.board.offset, few.board.total) == (None, 200)


@pytest.mark.parametrize("grouped", [True, False])
def test_windows_side_by_side_are_the_fleet(grouped: bool) -> None:  # noqa: FBT001 (a row)
    """16,384 envs, 4,096 at a time: each env is in one window."""
    windows = [shown(16_384, rows=4096, offset=place * 4096, grouped=grouped) for place in range(4)]

    ids = [env.env_id for window in windows for env in window.envs]
    assert len(ids) == len(set(ids)) == 16_384
    assert [window.board.total for window in windows] == [16_384] * 4
