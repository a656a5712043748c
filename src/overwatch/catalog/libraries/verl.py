"""verl: keys of its tracking."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.VERL)

NAMES: Final = Names(
    library=Library.VERL,
    version="0.5.0",
    is_run=False,
    rows={
        "clip_fraction": (_key(name="actor/pg_clipfrac"),),
        "explained_variance": (_key(name="critic/vf_explained_var"),),
        "grad_norm": (_key(name="actor/grad_norm"),),
        "learning_rate": (_key(name="actor/lr"),),
        "policy_loss": (_key(name="actor/pg_loss"),),
        "value_loss": (_key(name="critic/vf_loss"),),
        "return": (
            _key(name="critic/score/mean"),
            _key(name="critic/rewards/mean"),
        ),
        "update_time": (_key(name="timing_s/step"),),
        "kl_k1": (
            _key(
                name="actor/ppo_kl",
                estimator=Estimator.K1,
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "kl_reference": (
            _key(
                name="actor/kl_loss",
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "advantage_mean": (_key(name="critic/advantages/mean"),),
        "value_mean": (_key(name="critic/values/mean"),),
        "value_min": (_key(name="critic/values/min"),),
        "value_max": (_key(name="critic/values/max"),),
        "value_clipped": (_key(name="critic/vf_clipfrac"),),
        "entropy_nats": (_key(name="actor/entropy"),),
        "episode_length": (_key(name="response_length/mean"),),
        "answers_cut": (_key(name="response_length/clip_ratio"),),
        "sampler_weight": (_key(name="rollout_corr/rollout_is_mean"),),
        "sampler_ess": (_key(name="rollout_corr/rollout_is_eff_sample_size"),),
        "sampler_kl": (_key(name="rollout_corr/kl", estimator=Estimator.K1),),
        "mfu": (_key(name="perf/mfu/actor"),),
    },
)
