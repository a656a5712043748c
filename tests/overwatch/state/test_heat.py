"""Envs and lanes over time: the worst of each column, whole at any length, bounded, same after a restart."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch.state.heat import (
    ABSENT,
    BY_MARK,
    BYTES,
    CALM,
    COLUMNS,
    CRASHED,
    HIGHEST,
    LEAST_GONE,
    SECOND_NS,
    UNKNOWN,
    VERDICTS,
    Heat,
    Scored,
)

START = 1_800_000_000 * SECOND_NS
NOBODY = np.zeros(0, dtype=np.int64)


class Fleet:
    """A heat, and beside it every cell of every second, one by one."""

    def __init__(self) -> None:
        self.heat = Heat()
        self.seen: list[tuple[int, dict[int, int]]] = []
        self._moved, self._ids = 0, list[int]()

    def judge(self, now: int, cells: dict[int, int]) -> None:
        """What is known of each env at a time, as cells."""
        ids = list(cells)
        self._moved += ids != self._ids
        self._ids = ids
        scores = np.array([float(max(0, min(cell, CALM + HIGHEST) - CALM)) for cell in cells.values()])
        crashed = np.array(
            [row for row, cell in enumerate(cells.values()) if cell == CRASHED], dtype=np.int64
        )
        known = not any(cell == UNKNOWN for cell in cells.values())
        self.heat.take_envs(now, Scored(np.array(ids, dtype=np.int64), self._moved, scores, crashed, known))
        self.seen.append((now, cells if known else dict.fromkeys(cells, UNKNOWN)))

    def cell(self, env_id: int, column: int) -> int:
        """The worst of an env in a column: what was seen in it, else what it was before."""
        grid = self.heat.envs
        begin, end = (grid.since + (column + more) * grid.step for more in (0, 1))
        within = [cells.get(env_id, ABSENT) for at, cells in self.seen if begin <= at < end]
        return max(within) if within else self._before(env_id, begin)

    def held(self, env_id: int) -> list[int]:
        """What the heat has of an env."""
        row = self.heat.ids.tolist().index(env_id)
        return [int(cell) for cell in self.heat.envs.shown[:, row]]

    def _before(self, env_id: int, begin: int) -> int:
        return next((cells.get(env_id, ABSENT) for at, cells in reversed(self.seen) if at < begin), ABSENT)


CELLS = st.sampled_from((CALM, CALM, CALM + 1, CALM + 4, CALM + HIGHEST, CRASHED, UNKNOWN))
FLEETS = st.dictionaries(st.integers(0, 12), CELLS, max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((0, 1, 5, 10, 33, 700)), FLEETS), min_size=1, max_size=60))
def test_a_column_is_the_worst_of_its_time(steps: list[tuple[int, dict[int, int]]]) -> None:
    """Whoever comes, crashes and goes, at any pace: each cell is what was seen, or held where nothing was."""
    fleet, now = Fleet(), START
    for tenths, cells in steps:
        now += tenths * SECOND_NS // 10
        fleet.judge(now, cells)

    grid = fleet.heat.envs
    assert grid.used <= COLUMNS
    assert grid.since <= fleet.seen[0][0] <= now < grid.since + grid.used * grid.step
    if grid.step == SECOND_NS:
        for env_id in fleet.heat.ids.tolist():
            assert fleet.held(env_id) == [fleet.cell(env_id, column) for column in range(grid.used)]


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31), st.integers(COLUMNS - 2, 5 * COLUMNS))
def test_columns_reach_from_the_first_second_to_the_newest(seed: int, seconds: int) -> None:
    """At any length each column is the worst of its own seconds."""
    dice, fleet = np.random.default_rng(seed), Fleet()
    for second in range(seconds):
        cells = dice.choice((CALM, CALM + 3, CRASHED), 3, p=(0.9, 0.08, 0.02)).tolist()
        fleet.judge(START + second * SECOND_NS, dict(enumerate(cells)))

    grid = fleet.heat.envs
    assert COLUMNS // 2 <= grid.used <= COLUMNS
    for env_id in range(3):
        assert fleet.held(env_id) == [fleet.cell(env_id, column) for column in range(grid.used)]


def test_a_leap_in_time_is_what_was_true_before() -> None:
    """Where nothing was judged the newest holds on; a silence of days makes the columns longer."""
    fleet = Fleet()
    fleet.judge(START, {1: CALM + 2, 2: CALM})
    fleet.judge(START + 4 * SECOND_NS, {1: CALM})
    assert (fleet.held(1), fleet.held(2)) == ([4, 4, 4, 4, 2], [2, 2, 2, 2, 0])

    fleet.judge(START + 5_000_000 * SECOND_NS, {1: CRASHED})
    assert fleet.heat.envs.used <= COLUMNS
    assert (fleet.held(1)[0], fleet.held(1)[-1]) == (CALM + 2, CRASHED)


def test_a_clock_that_goes_back_counts_in_the_newest_column() -> None:
    """Nothing before it is changed."""
    fleet = Fleet()
    fleet.judge(START, {1: CALM})
    fleet.judge(START + 9 * SECOND_NS, {1: CALM})
    fleet.judge(START + 2 * SECOND_NS, {1: CRASHED})
    assert fleet.held(1) == [CALM] * 9 + [CRASHED]


@pytest.mark.parametrize(
    ("n", "columns", "size"), [(64, 512, 34 << 10), (16_384, 512, 9 << 20), (131_072, 64, 11 << 20)]
)
def test_a_run_takes_so_much_and_no_more(n: int, columns: int, size: int) -> None:
    """The more envs, the fewer columns: 512 bytes an env at most, and 8 MiB a run beside the ids."""
    heat, ids, calm = Heat(), np.arange(n), np.zeros(n)
    for second in range(2 * columns + columns // 8):
        heat.take_envs(START + second * SECOND_NS, Scored(ids, 0, calm, NOBODY, is_known=True))

    assert columns // 2 < heat.envs.used <= columns
    assert heat.envs.cells.nbytes <= min(512 * n, BYTES)
    assert heat.size <= size


def test_envs_that_join_late_make_no_run_larger_than_that() -> None:
    """Columns that are there already are joined when there are many rows."""
    heat = Heat()
    for second in range(500):
        n = 64 if second < 400 else 100_000
        scored = Scored(np.arange(n), n, np.zeros(n), NOBODY, is_known=True)
        heat.take_envs(START + second * SECOND_NS, scored)

    assert heat.envs.cells.nbytes <= BYTES
    assert heat.envs.used * heat.envs.step >= 500 * SECOND_NS
    assert (heat.envs.shown[:, 0] == CALM).all()
    assert heat.envs.shown[0, 99_999] == ABSENT


def test_of_envs_that_left_those_that_left_first_go() -> None:
    """However many come and go, rows stay within twice those that are there, or some."""
    heat = Heat()
    for generation in range(1000):
        ids = np.arange(4) + 4 * generation
        scored = Scored(ids, generation, np.zeros(4), NOBODY, is_known=True)
        heat.take_envs(START + generation * SECOND_NS, scored)
        assert heat.ids.size <= 4 + LEAST_GONE + 4

    assert set(range(3996, 4000)) <= set(heat.ids.tolist())
    assert min(heat.ids.tolist()) > 3900
    assert heat.let_go == 4000 - heat.ids.size


def test_a_restart_goes_on_with_the_same() -> None:
    """What was dumped and loaded at any place is at the end as if it had not been."""
    through, resumed = Heat(), Heat()
    dice = np.random.default_rng(3)
    for second in range(700):
        ids = np.sort(dice.choice(40, dice.integers(1, 40), replace=False))
        scores = dice.choice((0.0, 0.0, 0.4, 2.5, 30.0), ids.size)
        scored = Scored(ids, second, scores, NOBODY, is_known=second % 7 > 0)
        for heat in (through, resumed):
            heat.take_envs(START + second * SECOND_NS, scored)
            heat.take_lanes(START + second * SECOND_NS, {"gpu0": ("idle", "")})
        if second % 90 == 5:
            resumed = Heat.load(resumed.dump())

    assert resumed.dump() == through.dump()
    assert Heat.load(b"").dump() == Heat().dump()
    with pytest.raises(msgspec.DecodeError):
        Heat.load(b"nothing")


def test_lanes_are_at_their_worst_too() -> None:
    """What is marked is worse than what is not; among the same marks the verdict that is tried first."""
    heat = Heat()
    for verdicts in (
        {"gpu0": ("COMPUTE-BOUND", ""), "gpu1": ("unknown", "?")},
        {"gpu0": ("IO-BOUND", "!"), "gpu1": ("idle", "")},
        {"gpu0": ("THROTTLED", "!!")},
        {"gpu0": ("OOM-RISK", "!")},
    ):
        heat.take_lanes(START, verdicts)

    assert heat.names == ["gpu0", "gpu1"]
    assert heat.lanes.shown.tolist() == [[2 * BY_MARK + VERDICTS["THROTTLED"], VERDICTS["idle"]]]
    assert max(VERDICTS.values()) < BY_MARK
