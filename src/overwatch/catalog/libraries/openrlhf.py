"""OpenRLHF: keys as it writes them to Weights & Biases and TensorBoard."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.OPENRLHF)

NAMES: Final = Names(
    library=Library.OPENRLHF,
    version="0.11.2",
    is_run=False,
    rows={
        "kl_k1": (_key(name="train/ppo_kl", estimator=Estimator.K1, moment=Moment.ALL_EPOCHS),),
        "kl_reference": (_key(name="train/kl"),),
        "clip_fraction": (_key(name="train/ppo_clip_ratio", moment=Moment.ALL_EPOCHS),),
        # SB3 has this name for minus the entropy.
        "entropy_nats": (_key(name="train/entropy_loss", moment=Moment.ALL_EPOCHS, is_bare=True),),
        "policy_loss": (_key(name="train/policy_loss"),),
        "value_loss": (_key(name="train/critic_loss"),),
        "value_mean": (_key(name="train/values", moment=Moment.ALL_EPOCHS),),
        "learning_rate": (_key(name="train/actor_lr"),),
        "grad_norm": (_key(name="train/actor_grad_norm"),),
        "return": (_key(name="train/rollout/reward_mean"), _key(name="train/reward")),
        "reward_std": (_key(name="train/group_reward_std"),),
        "episode_length": (
            _key(name="train/rollout/response_length_mean"),
            _key(name="train/response_length"),
        ),
        "answers_cut": (_key(name="train/rollout/truncated_rate"), _key(name="train/truncated")),
        "sampler_kl": (_key(name="train/vllm_kl", estimator=Estimator.K1, moment=Moment.ALL_EPOCHS),),
        "update_time": (_key(name="train/timing/step_total"),),
    },
    left=MappingProxyType(
        {
            "train/return": "the sum of shaped rewards, less the KL penalty; the reward is train/reward",
            "train/score": "what dynamic sampling filters by",
            "train/rollout/reward_std": "over all answers, not within a group",
            "train/logprobs_diff": "the divergence from the reference once more, by k1",
            "train/critic_lr": "of the critic's optimiser",
            "train/critic_grad_norm": "of the critic's optimiser",
            "train/response_clip_ratio": "of prompt and answer together",
            "train/total_length": "of prompt and answer together",
        }
    ),
)
