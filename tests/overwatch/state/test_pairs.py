"""The two returns side by side: which values make a pair."""

import math

import pytest

from overwatch.state.policy import FIRST, WINDOW, Pair
from tests import fakes
from tests.fakes import START_NS

GAP = "overwatch.policy.goodhart_gap"


def _pairs(*updates: dict[str, float]) -> list[Pair]:
    events = [fakes.policy(START_NS + n, n, **row) for n, row in enumerate(updates, start=1)]
    return fakes.folded(events).pairs.newest.items


def test_a_true_return_of_every_other_update_has_its_counterpart() -> None:
    """The newest proxy; one update makes one pair at most."""
    rows = [{"proxy_return": float(n), **({"true_return": -float(n)} if n % 2 else {})} for n in range(1, 7)]

    assert _pairs(*rows) == [Pair(1.0, -1.0), Pair(3.0, -3.0), Pair(5.0, -5.0)]


@pytest.mark.parametrize("order", [("proxy_return", "true_return"), ("true_return", "proxy_return")])
def test_returns_of_records_of_their_own_are_paired(order: tuple[str, str]) -> None:
    """In either order."""
    rows = [{name: float(n)} for n in range(3) for name in order]

    assert _pairs(*rows) == [Pair(float(n), float(n)) for n in range(3)]


def test_what_is_not_finite_did_not_come() -> None:
    """Nor does the value before it stand in for it."""
    assert _pairs({"proxy_return": 1.0}, {"proxy_return": math.nan}, {"true_return": 2.0}) == []


def test_shares_and_offers_come_with_their_pair() -> None:
    """The poison share stands in for the food share; shares and counts that are none are absent."""
    both = {"proxy_return": 1.0, "true_return": 2.0}
    found = _pairs(
        {**both, "poison_share": 0.25, "food_offered": 30.0, "poison_offered": 10.0},
        {**both, "food_share": 1.5, "food_offered": -1.0, "poison_offered": 0.0},
    )

    assert found == [Pair(1.0, 2.0, 0.75, 30.0, 10.0), Pair(1.0, 2.0, None, None, 0.0)]
    assert [pair.offered for pair in found] == [0.75, None]


def test_as_many_are_held_as_are_judged() -> None:
    """The first ones and the newest."""
    rows = [{"proxy_return": float(n), "true_return": 0.0} for n in range(200)]
    pairs = fakes.folded([fakes.policy(START_NS + n, n, **row) for n, row in enumerate(rows, start=1)]).pairs

    assert (pairs.total, len(pairs.first), len(pairs.newest.items)) == (200, FIRST, WINDOW)
    assert pairs.newest.items[-1].proxy == 199.0


def test_the_gap_is_of_places_within_each_range() -> None:
    """Whatever the scales: both rise, then the true return falls again; none where one never differs."""
    rise = [(1000.0 * n, 0.01 * n) for n in range(20)]
    fall = [(19_000.0, 0.01 * n) for n in range(19, -5, -1)]
    rows = [{"proxy_return": p, "true_return": t} for p, t in [*rise, *fall]]
    events = [fakes.policy(START_NS + n, n, **row) for n, row in enumerate(rows, start=1)]
    together, parted = fakes.folded(events[:20]).policy[GAP].value, fakes.folded(events).policy[GAP].value
    constant = fakes.folded([fakes.policy(START_NS + n, n, proxy_return=1.0, true_return=n) for n in (1, 2)])

    assert together == pytest.approx(0.0)
    assert parted == pytest.approx(1.0, abs=0.1)
    assert GAP not in constant.policy


def test_one_share_of_what_was_eaten_gives_the_other() -> None:
    """What the trainer itself reports stays."""
    state = fakes.folded([fakes.policy(START_NS + 1, 1, food_share=0.75)])
    own = fakes.folded([fakes.policy(START_NS + 1, 1, food_share=0.75, poison_share=0.2)])

    assert state.policy["overwatch.policy.poison_share"].value == 0.25
    assert own.policy["overwatch.policy.poison_share"].value == 0.2
