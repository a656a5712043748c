"""verl: keys of its tracking."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.VERL)

NAMES: Final = Names(
    library=Library.VERL,
    version="0.9.1",
    is_run=False,
    rows={
        "clip_fraction": (_key(name="actor/pg_clipfrac", moment=Moment.ALL_EPOCHS),),
        "explained_variance": (_key(name="critic/vf_explained_var"),),
        "grad_norm": (_key(name="actor/grad_norm"),),
        "learning_rate": (_key(name="actor/lr"),),
        "policy_loss": (_key(name="actor/pg_loss"),),
        "value_loss": (_key(name="critic/vf_loss"),),
        "total_loss": (_key(name="actor/loss"),),
        "return": (_key(name="critic/score/mean"),),
        "update_time": (_key(name="timing_s/step"), _key(name="perf/time_per_step")),
        "kl_k1": (_key(name="actor/ppo_kl", estimator=Estimator.K1, moment=Moment.ALL_EPOCHS),),
        "kl_reference": (
            _key(name="actor/kl_loss", moment=Moment.ALL_EPOCHS),
            _key(name="actor/reward_kl_penalty", moment=Moment.BATCH),
        ),
        "value_mean": (_key(name="critic/values/mean"),),
        "value_min": (_key(name="critic/values/min"),),
        "value_max": (_key(name="critic/values/max"),),
        "value_clipped": (_key(name="critic/vf_clipfrac"),),
        "entropy_nats": (
            _key(name="actor/entropy", moment=Moment.BATCH),
            _key(name="actor/entropy_loss", moment=Moment.ALL_EPOCHS),
        ),
        "episode_length": (_key(name="response_length/mean"),),
        "answers_cut": (_key(name="response_length/clip_ratio"),),
        "sampler_weight": (_key(name="rollout_corr/rollout_is_mean"),),
        "sampler_ess": (_key(name="rollout_corr/rollout_is_eff_sample_size"),),
        "sampler_kl": (
            _key(name="rollout_corr/kl", estimator=Estimator.K1),
            _key(name="rollout_corr/k3_kl", estimator=Estimator.K3),
        ),
        "data_age_updates": (_key(name="training/off_policy/trajectory_staleness/mean"),),
        "mfu": (_key(name="perf/mfu/actor"),),
    },
    left=MappingProxyType(
        {
            "critic/rewards/mean": "less the KL penalty where that is in the reward; the score is beside it",
            "critic/rewards/max": "of one answer",
            "critic/rewards/min": "of one answer",
            "critic/loss": "critic/vf_loss once more",
            "critic/returns/max": "of one token",
            "critic/returns/min": "of one token",
            "timing_s/reward": "the seconds of a phase",
            "timing_s/values": "the seconds of a phase",
            "timing_per_token_ms/values": "the time of a phase",
            "critic/returns/mean": "of tokens, discounted; what an answer earned is critic/score/mean",
            "critic/advantages/mean": "after whitening, which makes it 0; the row is before it",
            "critic/vpred_mean": "while the critic learns; critic/values/mean is of the rollout",
            "critic/lr": "of the critic's optimiser",
            "critic/grad_norm": "of the critic's optimiser",
            "perf/mfu/critic": "of the critic alone",
            "perf/mfu/actor_infer": "of inference",
            "actor/pg_clipfrac_lower": "the dual clip's share of bad advantages, not the ratio's lower clip",
            "actor/kl_coef": "a weight, not a divergence",
            "actor/reward_kl_penalty_coeff": "a weight, not a divergence",
            "response_length_non_aborted/mean": "without aborted answers",
            "response_length_non_aborted/clip_ratio": "without aborted answers",
            "prompt_length/clip_ratio": "of prompts, not of answers",
            "training/rollout_probs_diff_mean": "a difference of probabilities; the row is a factor",
            "rollout_corr/rollout_is_max": "sampler against trainer, not new against old",
            "rollout_corr/rollout_is_min": "sampler against trainer, not new against old",
        }
    ),
)
