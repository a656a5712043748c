"""RLlib: paths in its results, joined by `/`."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RLLIB)

NAMES: Final = Names(
    library=Library.RLLIB,
    version="2.60.0",
    is_run=True,
    rows={
        "kl_divergence": (
            _key(
                name="learners/default_policy/mean_kl_loss",
                estimator=Estimator.EXACT,
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "explained_variance": (_key(name="learners/default_policy/vf_explained_var"),),
        "grad_norm": (_key(name="learners/default_policy/gradients_default_optimizer_global_norm"),),
        "learning_rate": (_key(name="learners/default_policy/default_optimizer_learning_rate"),),
        "policy_loss": (_key(name="learners/default_policy/policy_loss"),),
        "value_loss": (_key(name="learners/default_policy/vf_loss"),),
        "return": (
            _key(name="env_runners/episode_return_mean"),
            _key(name="episode_reward_mean"),
        ),
        "value_loss_unclipped": (_key(name="learners/default_policy/vf_loss_unclipped"),),
        "total_loss": (_key(name="learners/default_policy/total_loss"),),
        "entropy_nats": (_key(name="learners/default_policy/entropy"),),
        "episode_length": (_key(name="env_runners/episode_len_mean"),),
    },
)
