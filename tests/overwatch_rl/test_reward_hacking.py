"""The goodhart world, trained for real: the tower names the policy that fails by its proxy.

Five seeds of each mode, and that no other is named, are in `tests/learning`.
"""

import pytest

from tests.learning.training import GOODHART, Job, train


@pytest.mark.sampled(1, of="a policy that learns")
def test_a_policy_that_learns_its_proxy_is_named() -> None:
    """One seed of the proxy mode: found before its sixtieth update, while what it is paid still rises."""
    run = train(Job("ours", GOODHART, "proxy", 0, 60))

    assert run.named is not None
    assert run.mean("return", slice(-10, None)) > 3 * run.mean("return", slice(5))
