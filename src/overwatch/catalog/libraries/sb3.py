"""Stable-Baselines3 and sb3-contrib: keys of their logger."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SB3)

NAMES: Final = Names(
    library=Library.SB3,
    version="2.9.2",
    is_run=True,
    rows={
        # OpenRLHF and slime have this name for the entropy itself.
        "entropy_nats": (_key(name="train/entropy_loss", scale=-1.0, is_bare=True),),
        "kl_divergence": (
            _key(name="train/approx_kl", estimator=Estimator.K3, moment=Moment.LAST_EPOCH),
            _key(name="train/kl_divergence_loss", estimator=Estimator.EXACT, moment=Moment.BATCH),
        ),
        "clip_fraction": (_key(name="train/clip_fraction"),),
        "explained_variance": (_key(name="train/explained_variance"),),
        "learning_rate": (_key(name="train/learning_rate"),),
        "policy_loss": (
            _key(name="train/policy_gradient_loss"),
            _key(name="train/policy_loss"),
            _key(name="train/policy_objective", scale=-1.0),
            _key(name="train/actor_loss"),
        ),
        "value_loss": (
            _key(name="train/value_loss"),
            _key(name="train/critic_loss"),
        ),
        "return": (_key(name="rollout/ep_rew_mean"),),
        "eval_return": (_key(name="eval/mean_reward"),),
        "total_loss": (_key(name="train/loss"),),
        "action_std": (_key(name="train/std"),),
        "clip_range": (_key(name="train/clip_range"),),
        "episode_length": (_key(name="rollout/ep_len_mean"),),
        "success_rate": (_key(name="rollout/success_rate"),),
        "epsilon": (_key(name="rollout/exploration_rate"),),
    },
    left={
        "train/ent_coef": "the weight of the entropy, not the entropy",
        "train/ent_coef_loss": "the loss of the weight of the entropy",
        "train/clip_range_vf": "clips the critic; the row is the policy's",
        "rollout/return_std": "of ARS: how far its candidates' returns lie apart, not those of episodes",
        "time/total_timesteps": "steps of all environments, which the run counts",
        "time/iterations": "counts updates, which the run counts",
        "time/time_elapsed": "seconds since the run began",
        "time/fps": "steps of the environments a second, which the run counts",
        "train/n_updates": "counts passes over the batch, not updates",
        "eval/mean_ep_length": "of evaluation episodes; the row is of those that train",
        "eval/success_rate": "of evaluation episodes; the row is of those that train",
    },
)
