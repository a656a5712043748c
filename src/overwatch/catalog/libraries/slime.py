"""slime, and miles that goes on from it: keys of its tracking."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SLIME)

NAMES: Final = Names(
    library=Library.SLIME,
    version="of commit 00c2d6d",
    is_run=False,
    rows={
        "total_loss": (_key(name="train/loss"),),
        "policy_loss": (_key(name="train/pg_loss"),),
        "value_loss": (_key(name="train/critic-value_loss"),),
        "value_clipped": (_key(name="train/critic-value_clipfrac"),),
        "clip_fraction": (_key(name="train/pg_clipfrac"),),
        "kl_k1": (_key(name="train/ppo_kl", estimator=Estimator.K1),),
        # Sample Factory has this name for a loss with its weight.
        "kl_reference": (_key(name="train/kl_loss", is_bare=True),),
        # SB3 has this name for minus the entropy.
        "entropy_nats": (_key(name="train/entropy_loss", is_bare=True),),
        "ratio_mean": (_key(name="train/ois"),),
        "grad_norm": (_key(name="train/grad_norm"),),
        "learning_rate": (_key(name="train/lr-pg_0"),),
        "return": (_key(name="rollout/raw_reward", moment=Moment.BATCH),),
        "value_mean": (_key(name="rollout/values", moment=Moment.BATCH),),
        "episode_length": (_key(name="rollout/response_len/mean"), _key(name="rollout/response_lengths")),
        "answers_cut": (_key(name="rollout/truncated_ratio"), _key(name="rollout/truncated")),
        "sampler_weight": (_key(name="train/tis"),),
        "update_time": (_key(name="perf/step_time"),),
    },
    left=MappingProxyType(
        {
            "rollout/rewards": "less the group's mean; what an answer earned is rollout/raw_reward",
            "rollout/returns": "of tokens, less the KL penalty",
            "rollout/advantages": "after normalisation where that is on; the row is before it",
            "rollout/kl": "0 where kl_coef is 0: it is not measured then",
            "train/critic-grad_norm": "of the critic's optimiser",
            "train/critic-lr-pg_0": "of the critic's optimiser",
            "train/tis_clipfrac": "of sampler against trainer, not of the policy's ratio",
            "train/opsm_clipfrac": "of sequences that are masked, not of the policy's ratio",
            "train/tis_abs": "how far the weight is from 1; the row is the weight",
            "train/train_rollout_logprob_abs_diff": "of log probabilities; the row is a factor",
            "train/opd_reverse_kl": "from a teacher, not from the reference",
        }
    ),
)
