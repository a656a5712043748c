"""rsl_rl: tags of its logger."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RSL_RL)

NAMES: Final = Names(
    library=Library.RSL_RL,
    version="5.5.1",
    is_run=True,
    rows={
        "learning_rate": (_key(name="Loss/learning_rate"),),
        "policy_loss": (_key(name="Loss/surrogate"),),
        "value_loss": (
            _key(name="Loss/value"),
            _key(name="Loss/value_function"),
        ),
        "return": (_key(name="Train/mean_reward"),),
        # Among the losses, and the mean entropy in nats, with its sign.
        "entropy_nats": (_key(name="Loss/entropy"),),
        "action_std": (
            _key(name="Policy/mean_std"),
            _key(name="Policy/mean_noise_std"),
        ),
        "episode_length": (_key(name="Train/mean_episode_length"),),
    },
    left=MappingProxyType(
        {
            "Train/mean_reward/time": "the return again, with the seconds so far as its step",
            "Loss/rnd": "of the network that rewards what is new",
            "Loss/symmetry": "of mirrored observations alone",
            "Rnd/mean_extrinsic_reward": "a part of what the episodes earned",
            "Rnd/mean_intrinsic_reward": "a part of what the episodes earned",
        }
    ),
)
