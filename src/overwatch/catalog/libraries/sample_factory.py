"""Sample Factory: tags of its summaries."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SAMPLE_FACTORY)
_last: Final = partial(_key, moment=Moment.LAST_MINIBATCH)

NAMES: Final = Names(
    library=Library.SAMPLE_FACTORY,
    version="2.1.1",
    is_run=True,
    rows={
        "kl_divergence": (_last(name="train/kl_divergence", estimator=Estimator.EXACT),),
        "clip_fraction": (_last(name="train/fraction_clipped"),),
        "entropy_nats": (_last(name="train/entropy"),),
        "total_loss": (_last(name="train/loss"),),
        "policy_loss": (_last(name="train/policy_loss"),),
        # With its weight; the row is judged against the run's own median.
        "value_loss": (_last(name="train/value_loss"),),
        "learning_rate": (_key(name="train/lr"),),
        "advantage_mean": (_last(name="train/adv_mean"),),
        "advantage_std": (_last(name="train/adv_std"),),
        "ratio_min": (_last(name="train/ratio_min"),),
        "ratio_max": (_last(name="train/ratio_max"),),
        "return": (_key(name="reward/reward"),),
        "episode_length": (_key(name="len/len"),),
    },
    left=MappingProxyType(
        {
            "train/grad_norm": "after clipping; the row is before it",
            "train/kl_loss": "the divergence with its weight",
            "train/kl_divergence_max": "of one sample; the row is of a minibatch",
            "train/ratio_mean": "how far the ratio is from 1; the row is the ratio",
            "train/exploration_loss": "minus the entropy, or another divergence, with its weight",
            "train/value": "in units of normalised returns where these are normalised",
            "train/actual_lr": "scaled by the share of valid samples",
            "train/version_diff_avg": "versions are steps of the optimiser, not updates",
            "train/value_delta*": "how far the critic moved, not what it expected",
            "train/returns_running_*": "of the normaliser of returns, whose own steps it counts",
            "reward/reward_min": "of one episode",
            "reward/reward_max": "of one episode",
        }
    ),
)
