"""NeMo-RL: keys of its logger."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.NEMO_RL)

NAMES: Final = Names(
    library=Library.NEMO_RL,
    version=None,
    is_run=False,
    rows={
        "grad_norm": (_key(name="train/grad_norm"),),
        "learning_rate": (_key(name="train/lr"),),
        "return": (_key(name="train/reward"),),
        "kl_reference": (
            _key(
                name="train/kl_penalty",
                estimator=Estimator.K3,
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "ratio_max": (_key(name="train/probs_ratio_max"),),
        "ratio_min": (_key(name="train/probs_ratio_min"),),
        "ratio_mean": (_key(name="train/probs_ratio"),),
        "total_loss": (_key(name="train/loss"),),
        "entropy_nats": (_key(name="train/approx_entropy"),),
        "sampler_weight": (_key(name="train/sampling_importance_ratio"),),
        "sampler_kl": (_key(name="train/gen_kl_error", estimator=Estimator.K3),),
        "token_error": (_key(name="train/token_mult_prob_error"),),
        "data_age_updates": (_key(name="train/avg_trajectory_age"),),
    },
)
