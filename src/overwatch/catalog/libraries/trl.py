"""TRL: keys in the logs of its trainers that learn from rewards, bare and as Weights & Biases has them.

GRPO, RLOO and those made of them; `objective/…` is of online DPO, `policy/…`, `val/…` and `loss/…` are of the
PPO trainer, which TRL has no more. The names of its other trainers are those of transformers' Trainer.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TRL)
_bare: Final = partial(_key, is_bare=True)
_PEAK: Final = "is of one answer, not of the batch"
_HELD_OUT: Final = "is of answers that nothing is learned from"

NAMES: Final = Names(
    library=Library.TRL,
    version="1.16.0",
    is_run=True,
    rows={
        "kl_divergence": (
            _key(name="policy/approxkl_avg", estimator=Estimator.K2, moment=Moment.ALL_EPOCHS),
        ),
        "clip_fraction": (
            _key(name="clip_ratio/region_mean"),
            _key(name="train/clip_ratio/region_mean"),
            _key(name="policy/clipfrac_avg"),
        ),
        "grad_norm": (_bare(name="grad_norm"), _bare(name="train/grad_norm")),
        "learning_rate": (
            _bare(name="learning_rate"),
            _bare(name="train/learning_rate"),
            _key(name="lr"),
        ),
        "total_loss": (_bare(name="loss"), _bare(name="train/loss")),
        "policy_loss": (
            _bare(name="policy_loss"),
            _key(name="train/policy_loss"),
            _key(name="loss/policy_avg"),
        ),
        "value_loss": (_key(name="loss/value_avg"),),
        "return": (
            _bare(name="reward"),
            _key(name="train/reward"),
            _key(name="objective/scores"),
            _key(name="objective/rlhf_reward"),
        ),
        "kl_reference": (
            _bare(name="kl", estimator=Estimator.K3, moment=Moment.BATCH),
            _key(name="train/kl", estimator=Estimator.K3, moment=Moment.BATCH),
            _key(name="objective/kl", estimator=Estimator.K1, moment=Moment.BATCH),
        ),
        "clip_fraction_up": (
            _key(name="clip_ratio/high_mean"),
            _key(name="train/clip_ratio/high_mean"),
        ),
        "clip_fraction_down": (
            _key(name="clip_ratio/low_mean"),
            _key(name="train/clip_ratio/low_mean"),
        ),
        "ratio_mean": (_key(name="val/ratio"),),
        "entropy_nats": (
            _bare(name="entropy"),
            _key(name="train/entropy"),
            _key(name="policy/entropy_avg"),
        ),
        "episode_length": (
            _key(name="completions/mean_length"),
            _key(name="train/completions/mean_length"),
        ),
        "reward_std": (_key(name="reward_std"), _key(name="train/reward_std")),
        "groups_alike": (
            _key(name="frac_reward_zero_std"),
            _key(name="train/frac_reward_zero_std"),
        ),
        "answers_cut": (
            _key(name="completions/clipped_ratio"),
            _key(name="train/completions/clipped_ratio"),
        ),
        "sampler_weight": (
            _key(name="sampling/importance_sampling_ratio/mean"),
            _key(name="train/sampling/importance_sampling_ratio/mean"),
        ),
        "update_time": (_bare(name="step_time"), _key(name="train/step_time")),
    },
    left={
        "clip_ratio/low_min": _PEAK,
        "clip_ratio/high_max": _PEAK,
        "sampling/importance_sampling_ratio/min": _PEAK,
        "sampling/importance_sampling_ratio/max": _PEAK,
        "entropy_coef": "is what the entropy is weighted by",
        "eval_*": _HELD_OUT,
        "rewards/*": "is what one of several reward functions paid; `reward` is their weighted sum",
        "train_loss": "is the mean over the whole training",
        "objective/non_score_reward": "is what the distance to the reference model costs, paid by no reward",
        "objective/entropy": "is the sum over an answer's tokens, not a mean",
    },
)
