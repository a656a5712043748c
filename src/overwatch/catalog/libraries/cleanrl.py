"""CleanRL: tags that its scripts write."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.CLEANRL)

NAMES: Final = Names(
    library=Library.CLEANRL,
    version="0.4.8",
    is_run=False,
    rows={
        "kl_divergence": (
            _key(name="losses/approx_kl", estimator=Estimator.K3, moment=Moment.LAST_MINIBATCH),
            _key(name="approx_kl", estimator=Estimator.K3, moment=Moment.LAST_MINIBATCH),
        ),
        "clip_fraction": (_key(name="losses/clipfrac"),),
        "explained_variance": (_key(name="losses/explained_variance"),),
        "learning_rate": (_key(name="charts/learning_rate"),),
        "policy_loss": (
            _key(name="losses/policy_loss"),
            _key(name="losses/actor_loss"),
        ),
        "value_loss": (
            _key(name="losses/value_loss"),
            _key(name="losses/qf_loss"),
            _key(name="losses/td_loss"),
        ),
        "return": (_key(name="charts/episodic_return"),),
        "kl_k1": (_key(name="losses/old_approx_kl", estimator=Estimator.K1, moment=Moment.LAST_MINIBATCH),),
        "entropy_nats": (_key(name="losses/entropy"),),
        "episode_length": (_key(name="charts/episodic_length"),),
        "epsilon": (_key(name="charts/epsilon"),),
    },
)
