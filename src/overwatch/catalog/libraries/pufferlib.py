"""PufferLib: keys of its logger."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.PUFFERLIB)
_all: Final = partial(_key, moment=Moment.ALL_EPOCHS)

NAMES: Final = Names(
    library=Library.PUFFERLIB,
    version="3.0.0",
    is_run=True,
    rows={
        "kl_divergence": (_all(name="losses/approx_kl", estimator=Estimator.K3),),
        "kl_k1": (_all(name="losses/old_approx_kl", estimator=Estimator.K1),),
        "clip_fraction": (_all(name="losses/clipfrac"),),
        "policy_loss": (_all(name="losses/policy_loss"),),
        "value_loss": (_all(name="losses/value_loss"),),
        "entropy_nats": (_all(name="losses/entropy"),),
        "ratio_mean": (_all(name="losses/importance"),),
        "learning_rate": (_key(name="learning_rate"),),
        "return": (_key(name="environment/episode_return"),),
        "episode_length": (_key(name="environment/episode_length"),),
    },
    left=MappingProxyType(
        {
            "losses/explained_variance": "of values after the update; the row is before it",
            "environment/score": "each environment's own measure",
            "environment/perf": "each environment's own measure, 0 to 1",
        }
    ),
)
