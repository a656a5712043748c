"""Rows of envs, one at a time or many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.catalog import Scope, find
from overwatch.state.envs import Envs
from tests import fakes
from tests.fakes import START_NS

REPORTED = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=20)


@given(REPORTED)
def test_one_row_is_touched_as_several_are(reported: list[tuple[int, int]]) -> None:
    """When an env was seen last, and when it was born, whether rows come alone or in arrays."""
    alone, many = Envs(), Envs()
    for env_id, at in reported:
        alone.touch_one(alone.row(env_id), at)
        many.touch(np.array([many.row(env_id)]), at)
    assert alone.seen_at[: alone.n].tolist() == many.seen_at[: many.n].tolist()
    assert alone.born_at[: alone.n].tolist() == many.born_at[: many.n].tolist()
    assert alone.newborn == many.newborn


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("short", ["reward", "rent", "step_time"])
def test_a_column_with_a_value_that_is_none_is_noted_by_env(short: str, value: float) -> None:
    """Without any fact beside it: each env whose value must be finite and is not, however many."""
    column = [value if env in (2, 40) or env >= 50 else 1.0 for env in range(100)]
    state = fakes.folded([fakes.envs(START_NS, range(100), **{short: column})])

    row = find(short, Scope.ENV)
    assert row is not None
    assert sorted(state.envs.non_finite) == [2, 40, *range(50, 100)]
    assert state.envs.non_finite[40] == f"{'nan' if value != value else 'inf'} in {row.name}"  # noqa: PLR0124
    assert (state.envs.non_finite_at[:100] == START_NS).tolist() == [value != 1.0 for value in column]


def test_a_measure_that_may_be_undefined_is_not_noted() -> None:
    """A metric or a mean return before there is one."""
    nothing = [float("nan")] * 3
    state = fakes.folded([fakes.envs(START_NS, range(3), metric=nothing, **{"return": nothing})])

    assert state.envs.non_finite == {}
