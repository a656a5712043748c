"""A return that comes as a gauge: shown as sent, and a change of it is an episode."""

import math

import pytest

from tests import fakes
from tests.fakes import SECOND, START_NS


def _reported(*returns: float) -> list[fakes.Event]:
    """One export a second of env 7's return."""
    return [
        fakes.envs(START_NS + i * SECOND, [7], **{"return": [reported]}) for i, reported in enumerate(returns)
    ]


def test_a_gauge_is_shown_as_it_was_sent() -> None:
    """The newest value, not a mean over exports; the env is there, with its time."""
    state = fakes.folded(_reported(10.0, 10.0, 20.0, 20.0, 20.0))

    assert state.envs.mean_return().tolist() == [20.0]
    assert state.envs.seen_at[0] == START_NS + 4 * SECOND


def test_only_a_change_is_a_finished_episode() -> None:
    """A gauge that is exported again states nothing new."""
    state = fakes.folded(_reported(10.0, 10.0, 20.0, 20.0, 10.0))

    assert state.envs.episodes[0] == 3
    assert state.envs.returns[0, :3].tolist() == [10.0, 20.0, 10.0]


def test_a_gauge_that_is_nan_is_no_episode() -> None:
    """A mean over no episodes is absent on the board."""
    state = fakes.folded(_reported(math.nan, math.nan))

    assert state.envs.episodes[0] == 0
    assert math.isnan(state.envs.mean_return()[0])


def test_episodes_that_end_after_the_gauge_are_shown_instead() -> None:
    """What is newer counts: the mean of the episodes, the reported one among them."""
    events = [*_reported(10.0), fakes.ended(START_NS + 2 * SECOND, [7], [30.0])]

    assert fakes.folded(events).envs.mean_return().tolist() == [pytest.approx(20.0)]
