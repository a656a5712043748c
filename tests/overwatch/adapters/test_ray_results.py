"""Results of RLlib as numbers: recorded ones, and those that read as what they are not."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

from overwatch.adapters.ray_results import flat, rllib_numbers, settings, tune_numbers
from overwatch.catalog import CUSTOM_PREFIX

RECORDED = Path(__file__).parent / "recorded"
PPO_ROWS = {
    "kl_divergence", "explained_variance", "learning_rate", "policy_loss", "value_loss",
    "value_loss_unclipped", "total_loss", "entropy_nats", "return", "eval_return", "episode_length",
}  # fmt: skip


def _recorded(name: str) -> dict[str, Any]:
    """The newest result of a recorded run, nested as RLlib gives it."""
    nested: dict[str, Any] = {}
    for path, value in json.loads((RECORDED / f"{name}.json").read_text())["logged"][-1].items():
        *folders, last = path.split("/")
        below = nested
        for folder in folders:
            below = below.setdefault(folder, {})
        below[last] = value
    return nested


def _rows(found: dict[str, float]) -> set[str]:
    return {name for name in found if not name.startswith(CUSTOM_PREFIX) and "/" not in name}


def test_the_numbers_of_ppo_fill_their_rows() -> None:
    """As RLlib logged them, each as it was; all others under their own names."""
    result = _recorded("rllib_ppo")
    found = rllib_numbers(result)

    assert _rows(found) == PPO_ROWS
    assert found["kl_divergence"] == result["learners"]["default_policy"]["mean_kl_loss"]
    assert found["return"] == result["env_runners"]["episode_return_mean"]
    assert len(found) == len(flat(result))


def test_off_policy_algorithms_have_a_critic_and_no_divergence() -> None:
    """What the critic expects is its values; the absolute error is no row's."""
    found = rllib_numbers(_recorded("rllib_dqn"))

    assert {"value_mean", "value_min", "value_max", "value_loss", "grad_norm", "return"} <= _rows(found)
    assert "kl_divergence" not in found
    assert f"{CUSTOM_PREFIX}learners/default_policy/td_error_mean" in found
    assert "learning_rate" not in rllib_numbers(_recorded("rllib_sac"))


def test_a_module_of_any_name_is_the_policy_where_it_is_the_only_one() -> None:
    """A custom module's numbers are judged as the default one's."""
    result = _recorded("rllib_ppo")
    result["learners"]["mine"] = result["learners"].pop("default_policy")

    assert _rows(rllib_numbers(result)) == PPO_ROWS


def test_several_modules_keep_their_names() -> None:
    """None of them is the policy; their divergences are its heads."""
    result = _recorded("rllib_ppo")
    module = result["learners"].pop("default_policy")
    result["learners"] |= {"p0": module, "p1": {**module, "mean_kl_loss": 0.5}}
    found = rllib_numbers(result)

    assert _rows(found) == {"return", "episode_length", "eval_return"}
    assert found[f"{CUSTOM_PREFIX}kl_divergence/p1"] == 0.5
    assert found[f"{CUSTOM_PREFIX}learners/p0/policy_loss"] == module["policy_loss"]


def test_a_divergence_that_was_not_computed_is_absent() -> None:
    """RLlib logs a zero for it, which is no divergence of 0."""
    found = rllib_numbers(_recorded("rllib_ppo"), has_kl=False)

    assert not [name for name in found if "mean_kl" in name or name == "kl_divergence"]


def test_appos_divergence_is_another_one() -> None:
    """From its target network, not from the policy that acted."""
    result = {"learners": {"default_policy": {"mean_kl_loss": 0.2, "mean_IS": 1.0}}}

    assert rllib_numbers(result)[f"{CUSTOM_PREFIX}learners/default_policy/mean_kl_loss"] == 0.2


def test_of_a_sum_and_a_mean_the_mean_is_the_loss() -> None:
    """IMPALA logs both, the sum under the name that PPO's mean has."""
    result = {"learners": {"default_policy": {"vf_loss": 50.0, "mean_vf_loss": 0.5, "mean_pi_loss": 0.1}}}
    found = rllib_numbers(result)

    assert (found["value_loss"], found["policy_loss"]) == (0.5, 0.1)
    assert found[f"{CUSTOM_PREFIX}learners/default_policy/vf_loss"] == 50.0


@pytest.mark.parametrize(
    ("trained", "ended", "expected"),
    [(64.0, 2.0, {"policy_loss", "return"}), (math.nan, math.nan, set()), (0.0, 2.0, {"return"})],
)
def test_a_nan_is_a_number_where_something_was_counted(
    trained: float, ended: float, expected: set[str]
) -> None:
    """A loss that broke is judged; the mean of no minibatch, or of no episode, is absent."""
    learner = {"policy_loss": math.nan, "num_module_steps_trained": trained}
    runners = {"episode_return_mean": math.nan, "num_episodes": ended}
    found = rllib_numbers({"learners": {"default_policy": learner}, "env_runners": runners})

    assert {name for name, value in found.items() if math.isnan(value)} == expected


def test_a_report_to_tune_has_its_authors_names() -> None:
    """As `run.update` takes them, with the time that Tune measured; texts and flags are no numbers."""
    report = {"loss": 1.0, "val": {"acc": 0.5}, "time_this_iter_s": 2.0, "training_iteration": 3, "update": 7}
    stated = {"done": False, "trial_id": "a", "pid": 1, "timestamp": 2, "config": {"lr": 0.1}}

    assert tune_numbers(report | stated, {}) == {"loss": 1.0, "val/acc": 0.5, "update_time": 2.0}


def test_a_report_of_an_rllib_trial_has_rllibs_names() -> None:
    """Tune's driver gets what RLlib's own callback gets."""
    result = _recorded("rllib_ppo")

    assert tune_numbers(result, {}) == rllib_numbers(result)
    assert "kl_divergence" not in tune_numbers(result, {"use_kl_loss": False})


def test_settings_have_what_entropy_and_gradients_are_judged_by() -> None:
    """How many actions there are, and where the norm of the gradient is clipped."""
    config = {"lr": 0.1, "grad_clip": 0.5, "grad_clip_by": "global_norm", "model": object()}

    assert settings(config, spaces.Discrete(2)) == {
        "lr": 0.1, "grad_clip": 0.5, "grad_clip_by": "global_norm", "n_actions": 2, "max_grad_norm": 0.5,
    }  # fmt: skip
    assert settings({"grad_clip": 0.5, "grad_clip_by": "value"}, spaces.Box(-1, 1, (2,))) == {
        "grad_clip": 0.5, "grad_clip_by": "value",
    }  # fmt: skip
