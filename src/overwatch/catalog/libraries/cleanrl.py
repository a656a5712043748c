"""CleanRL: tags that its scripts write."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.CLEANRL)
_last: Final = partial(_key, moment=Moment.LAST_MINIBATCH)

NAMES: Final = Names(
    library=Library.CLEANRL,
    version="2.0.0b1",
    is_run=True,
    rows={
        "kl_divergence": (
            _last(name="losses/approx_kl", estimator=Estimator.K3),
            _last(name="approx_kl", estimator=Estimator.K3),
        ),
        "clip_fraction": (_key(name="losses/clipfrac", moment=Moment.ALL_EPOCHS),),
        "explained_variance": (_key(name="losses/explained_variance", moment=Moment.BATCH),),
        "learning_rate": (_key(name="charts/learning_rate"),),
        "policy_loss": (
            _last(name="losses/policy_loss"),
            _last(name="losses/actor_loss"),
        ),
        "value_loss": (
            _last(name="losses/value_loss"),
            _last(name="losses/qf_loss"),
            _last(name="losses/td_loss"),
        ),
        "total_loss": (_last(name="losses/loss"),),
        "value_mean": (_last(name="losses/q_values"),),
        "return": (
            _key(name="charts/episodic_return"),
            _key(name="charts/episode_reward"),
        ),
        "kl_k1": (_last(name="losses/old_approx_kl", estimator=Estimator.K1),),
        "entropy_nats": (_last(name="losses/entropy"),),
        "episode_length": (
            _key(name="charts/episodic_length"),
            _key(name="charts/episode_length"),
        ),
        "epsilon": (_key(name="charts/epsilon"),),
    },
    left=MappingProxyType(
        {
            "losses/qf[12]_values": "of one of two critics, which add the policy's entropy to the return",
            "losses/qf[12]_loss": "of one of two critics; losses/qf_loss is their mean",
            "losses/alpha": "SAC's temperature, no loss",
            "losses/alpha_loss": "of SAC's temperature",
            "losses/fwd_loss": "of the network that predicts what is new",
            "charts/episode_curiosity_reward": "a reward that the environment did not pay",
            "eval/episodic_return": "of single episodes after training",
        }
    ),
)
