"""TRL: keys in the logs of its trainers, bare and with the prefix of Weights & Biases."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TRL)

NAMES: Final = Names(
    library=Library.TRL,
    version="1.16.0",
    is_run=True,
    rows={
        "kl_divergence": (
            _key(
                name="policy/approxkl_avg",
                estimator=Estimator.K2,
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "clip_fraction": (
            _key(name="policy/clipfrac_avg"),
            _key(name="clip_ratio/region_mean"),
            _key(name="train/clip_ratio/region_mean"),
        ),
        "grad_norm": (
            _key(name="grad_norm"),
            _key(name="train/grad_norm"),
        ),
        "learning_rate": (_key(name="lr"),),
        "policy_loss": (_key(name="loss/policy_avg"),),
        "value_loss": (_key(name="loss/value_avg"),),
        "return": (
            _key(name="objective/scores"),
            _key(name="objective/rlhf_reward"),
        ),
        "kl_reference": (
            _key(name="objective/kl", estimator=Estimator.K1, moment=Moment.BATCH),
            _key(name="train/kl", estimator=Estimator.K3, moment=Moment.BATCH),
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
            _key(name="train/entropy"),
            _key(name="policy/entropy_avg"),
        ),
        "episode_length": (
            _key(name="completions/mean_length"),
            _key(name="train/completions/mean_length"),
        ),
        "reward_std": (
            _key(name="reward_std"),
            _key(name="train/reward_std"),
        ),
        "groups_alike": (
            _key(name="frac_reward_zero_std"),
            _key(name="train/frac_reward_zero_std"),
        ),
        "answers_cut": (
            _key(name="completions/clipped_ratio"),
            _key(name="train/completions/clipped_ratio"),
        ),
        "sampler_weight": (_key(name="sampling/importance_sampling_ratio/mean"),),
    },
)
