"""Limits that follow from what a run declared."""

from overwatch.catalog.judging import run_limits
from overwatch.catalog.metric import Limit, Limits, Side
from overwatch.catalog.moves import KL_REFERENCE


def test_a_run_states_how_far_it_means_to_leave_its_reference() -> None:
    """Under any preset; what is no number above 0 declares nothing."""
    declared = Limits(warning=Limit(side=Side.ABOVE, value=0.6))
    assert run_limits(KL_REFERENCE, "grpo", {"target_kl_reference": "0.6"}) == declared
    assert run_limits(KL_REFERENCE, "ppo", {"target_kl_reference": "0.6"}) == declared
    for config in ({}, {"target_kl": "0.6"}, {"target_kl_reference": "none"}, {"target_kl_reference": "0"}):
        assert run_limits(KL_REFERENCE, "grpo", config) == KL_REFERENCE.limits_for("grpo")
