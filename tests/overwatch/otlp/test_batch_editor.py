"""Many measurements as few: what is left was sent, nothing bad is lost, folding in parts is no matter."""

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overwatch.catalog import KL, Scope
from overwatch.events import Column, Conflated, Measured
from overwatch.otlp.batch_editor import fold
from tests import fakes
from tests.fakes import SECOND, START_NS

REWARD = "overwatch.env.reward"


def updates(values: list[float]) -> list[Measured]:
    """One update a second."""
    return [fakes.policy(START_NS + n * SECOND, n, kl_divergence=value) for n, value in enumerate(values, 1)]


def steps(rows: list[dict[int, float]]) -> list[Measured]:
    """One step a second of the envs that are there."""
    return [
        fakes.envs(START_NS + n * SECOND, list(row), n, reward=np.array(list(row.values()), dtype=np.float32))
        for n, row in enumerate(rows, 1)
        if row
    ]


def test_updates_become_the_last_with_what_the_others_were() -> None:
    """n, least, most, the first's number, and how many were beyond each limit."""
    reported = updates([0.001, 0.02, 0.5, 0.04, 0.01])
    ((place, left),) = fold(reported)

    assert place == 4
    assert left.values == reported[-1].values
    assert (left.at, left.index) == (reported[-1].at, 5)
    many = left.conflated
    assert many is not None
    assert (many.n, many.first) == (5, 1)
    assert (many.low[KL.name].first(), many.high[KL.name].first()) == (0.001, 0.5)
    assert many.warnings == {KL.name: 1}
    assert many.criticals == {KL.name: 2}


def test_a_value_that_is_not_finite_counts_as_bad_and_is_no_extreme() -> None:
    """Where all are, there are no extremes."""
    ((_, left),) = fold(updates([0.01, math.nan, math.inf, 0.012]))
    ((_, none),) = fold(updates([math.nan, math.nan]))

    assert left.conflated is not None
    assert left.conflated.high[KL.name].first() == 0.012
    assert left.conflated.criticals == {KL.name: 2}
    assert none.conflated is not None
    assert none.conflated.low == {}


def test_a_row_stands_where_it_was_sent_last() -> None:
    """An env that is not in later steps keeps its own last value and time."""
    reported = steps([{0: 1.0, 1: 5.0}, {0: 2.0, 1: 9.0}, {0: 3.0}, {0: -4.0}])
    left = fold(reported)

    assert [place for place, _ in left] == [1, 3]
    early, late = (event for _, event in left)
    assert early.keys["env_id"].array().tolist() == [1]
    assert (early.at, early.values[REWARD].array().tolist()) == (reported[1].at, [9.0])
    assert late.keys["env_id"].array().tolist() == [0]
    assert early.conflated is not None
    assert late.conflated is not None
    assert (early.conflated.n, late.conflated.n) == (2, 4)
    assert late.conflated.low[REWARD].array().tolist() == [-4.0]
    assert late.conflated.high[REWARD].array().tolist() == [3.0]
    assert late.conflated.high[REWARD].dtype == "<f4"


def test_words_are_the_last_that_were_sent() -> None:
    """Slots are distinguished by all of their keys, whatever their labels' order."""
    reported = [
        fakes.slots(START_NS, [0, 0], ["r0c0", "r0c1"], ["training", "dormant"]),
        fakes.slots(START_NS + SECOND, [0, 0], ["r0c1", "r0c0"], ["blending", "holding"]),
    ]
    ((place, left),) = fold(reported)

    assert place == 1
    assert left.keys["slot"].words() == ["r0c1", "r0c0"]
    assert left.values["overwatch.slot.stage"].words() == ["blending", "holding"]
    assert left.conflated == Conflated(n=2)


def test_what_does_not_fit_together_is_left() -> None:
    """Columns without keys whose lengths differ are no rows of the same subjects."""
    reported = [
        Measured(at=START_NS, scope=Scope.POLICY, values={"a": Column.of([1.0] * n)}, keys={}) for n in (1, 2)
    ]
    left = fold(reported)

    assert sum(len(event.values["a"]) for _, event in left) >= 2


ROWS = st.lists(
    st.dictionaries(
        st.integers(0, 5), st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=6
    ),
    min_size=1,
    max_size=12,
)


@given(rows=ROWS, cut=st.integers(0, 12))
@example(rows=[{0: 0.0}, {0: 0.0, 1: -0.0}, {0: 0.0}], cut=2)
@settings(deadline=None)
def test_folding_in_parts_is_folding_at_once(rows: list[dict[int, float]], cut: int) -> None:
    """Every env's last value, extremes and the breaches are the same, however the steps were parted."""
    reported = steps(rows)
    at_once = [event for _, event in fold(reported)]
    parts = [event for part in (reported[:cut], reported[cut:]) for _, event in fold(part)]
    again = [event for _, event in fold(parts)]

    assert _by_env(again) == _by_env(at_once)
    last = {env: value for row in rows for env, value in row.items()}
    assert {env: found[0] for env, found in _by_env(at_once).items()} == {
        env: repr(float(np.float32(value))) for env, value in last.items()
    }


def _by_env(events: list[Measured]) -> dict[int, tuple[str, str, str, int]]:
    """Last, least, most and time of each env; extremes of one value are that value, zeros have one sign."""
    found = {}
    for event in events:
        values = event.values[REWARD].array()
        finite = np.where(np.isfinite(values), values, np.nan) + np.float32(0.0)
        many = event.conflated
        low = finite if many is None or REWARD not in many.low else many.low[REWARD].array()
        high = finite if many is None or REWARD not in many.high else many.high[REWARD].array()
        for row, env in enumerate(event.keys["env_id"].array().tolist()):
            found[env] = (repr(float(values[row])), str(low[row]), str(high[row]), event.at)
    return found
