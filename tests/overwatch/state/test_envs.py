"""Rows of envs, one at a time or many."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overwatch.state.envs import Envs

TOLD = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=20)


@given(TOLD)
def test_one_row_is_touched_as_several_are(told: list[tuple[int, int]]) -> None:
    """When an env was seen last, and when it was born, whether rows come alone or in arrays."""
    alone, many = Envs(), Envs()
    for env_id, at in told:
        alone.touch_one(alone.row(env_id), at)
        many.touch(np.array([many.row(env_id)]), at)
    assert alone.seen_at[: alone.n].tolist() == many.seen_at[: many.n].tolist()
    assert alone.born_at[: alone.n].tolist() == many.born_at[: many.n].tolist()
    assert alone.newborn == many.newborn
