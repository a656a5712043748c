"""What is computed from what."""

from overwatch.catalog import KL, ROWS
from overwatch.catalog.graph import arrows, backwards, find_cycle, reach


def test_arrows_are_followed_both_ways() -> None:
    """A row leads to its findings, and back to what it is computed from."""
    fed = arrows(ROWS)

    assert (1, "finding:policy-kl-divergence") in reach(KL.name, fed)
    assert (1, "event:early_stopped") in reach(KL.name, fed)
    gap = reach("overwatch.policy.goodhart_gap", backwards(fed))
    assert gap == [(1, "overwatch.policy.proxy_return"), (1, "overwatch.policy.true_return")]


def test_a_circle_is_found_wherever_it_is() -> None:
    """Not only where one begins, and each name is visited once."""
    assert find_cycle({"a": ("b",), "b": ("c",), "c": ("b",)}) == ("b", "c", "b")
    assert find_cycle({"a": ("b", "c"), "b": ("c",), "c": ()}) == ()
    assert reach("a", {"a": ("b",), "b": ("a", "c")}) == [(1, "b"), (2, "c")]
