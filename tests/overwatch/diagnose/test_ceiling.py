"""A return at the most that episodes can earn: what the critic does is no matter there."""

import pytest

from tests.overwatch.diagnose.watched import Rows, Watched


def _lost(n: int, earned: float) -> dict[str, float]:
    """A critic that is well, and from the 60th update on is not: truncated episodes are all alike."""
    lost = {"explained_variance": -0.3, "value_loss": 40.0 + n % 7} if n > 60 else {}
    return {"return": earned, **lost}


def test_a_critic_at_the_ceiling_is_no_matter() -> None:
    """Returns rose to 500 and stay there, but for a dip now and then."""
    rows: Rows = lambda n: _lost(n, min(500.0, 20.0 * n) if n % 9 else 430.0)  # noqa: E731 as a table

    assert Watched().updates(range(1, 121), rows).opened == {}


@pytest.mark.parametrize(
    "rows",
    [lambda n: _lost(n, 9.0 + n % 2), lambda n: _lost(n, 300.0 + 40.0 * (n % 3))],
    ids=["never rose", "no ceiling"],
)
def test_a_critic_elsewhere_is_judged(rows: Rows) -> None:
    """A floor is no ceiling, nor is a level that returns vary around."""
    found = Watched().updates(range(1, 121), rows).opened

    assert {"critic-failing", "policy-explained-variance", "policy-value-loss"} & set(found)
