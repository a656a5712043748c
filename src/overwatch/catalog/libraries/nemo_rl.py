"""NeMo-RL: keys of its logger."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.NEMO_RL)

NAMES: Final = Names(
    library=Library.NEMO_RL,
    version="of commit 006907a",
    is_run=False,
    rows={
        "grad_norm": (_key(name="train/grad_norm"),),
        "learning_rate": (_key(name="train/lr"),),
        "return": (_key(name="train/reward"),),
        # Its loss divides by the weight again.
        "kl_reference": (_key(name="train/kl_penalty", estimator=Estimator.K3, moment=Moment.ALL_EPOCHS),),
        "ratio_max": (_key(name="train/probs_ratio_max"),),
        "ratio_min": (_key(name="train/probs_ratio_min"),),
        "ratio_mean": (_key(name="train/probs_ratio"),),
        "total_loss": (_key(name="train/loss"),),
        "entropy_nats": (_key(name="train/approx_entropy"),),
        "episode_length": (_key(name="train/mean_gen_tokens_per_sample"),),
        "answers_cut": (_key(name="train/truncation_rate"),),
        "sampler_weight": (_key(name="train/sampling_importance_ratio"),),
        "sampler_kl": (_key(name="train/gen_kl_error", estimator=Estimator.K3),),
        "token_error": (_key(name="train/token_mult_prob_error"),),
        "data_age_updates": (_key(name="train/avg_trajectory_age"),),
        "update_time": (_key(name="timing/train/total_step_time"),),
    },
    left=MappingProxyType(
        {
            "train/probs_ratio_clamped": "after clipping; the row is before it",
            "train/policy_kl_error": "from trainer to sampler; the other direction is train/gen_kl_error",
            "train/js_divergence_error": "another divergence",
            "train/is_oob_ratio": "weights out of bounds, of sampler against trainer",
            "train/positive_nll_loss": "of right answers alone",
            "train/baseline_reward/pct_0": "prompts that earned 0 alone, in per cent",
            "train/baseline_reward/pct_1": "prompts that earned 1 alone, in per cent",
            "train/baseline_reward/pct_mixed": "in per cent, where rewards are 0 or 1",
            "train/advantages/mean": "after normalisation; the row is before it",
        }
    ),
)
