"""Tianshou: tags of its TensorBoard and W&B loggers."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TIANSHOU)
_NOT_MEAN: Final = ("max", "min", "std")
_LOSSES: Final = ("loss", "actor_loss", "vf_loss", "ent_loss")

NAMES: Final = Names(
    library=Library.TIANSHOU,
    version="2.0.1",
    is_run=True,
    rows={
        "policy_loss": (
            _key(name="update/actor_loss/mean"),
            _key(name="update/clip_loss/mean"),
            _key(name="update/actor_loss"),
            _key(name="clip_loss/mean"),
        ),
        "value_loss": (
            _key(name="update/vf_loss/mean"),
            _key(name="update/critic_loss"),
            _key(name="update/critic1_loss"),
            _key(name="vf_loss/mean"),
        ),
        "return": (_key(name="training/returns_stat/mean"),),
        "eval_return": (_key(name="test/returns_stat/mean"),),
        "total_loss": (
            _key(name="update/loss/mean"),
            _key(name="update/loss"),
            _key(name="loss/mean"),
        ),
        # Named a loss, and the mean entropy of the distributions in nats, with its sign.
        "entropy_nats": (
            _key(name="update/ent_loss/mean"),
            _key(name="ent_loss/mean"),
        ),
        "episode_length": (_key(name="training/lens_stat/mean"),),
    },
    left=MappingProxyType(
        {
            **{f"update/{loss}/{of}": "not the mean of the update" for loss in _LOSSES for of in _NOT_MEAN},
            **{f"update/smoothed_loss/{loss}": "a moving mean over updates" for loss in _LOSSES},
            "update/critic2_loss": "of the second critic; the row has the first's",
            **{f"training/returns_stat/{of}": "not the mean" for of in _NOT_MEAN},
            **{f"test/returns_stat/{of}": "of test episodes, and not the mean" for of in _NOT_MEAN},
            "update/gradient_steps": "how many steps the optimiser took",
            "update/smoothed_loss/gradient_steps": "a moving mean of how many steps the optimiser took",
            "info/best_reward": "the best of all test steps so far",
            "info/best_reward_std": "of the best of all test steps so far",
        }
    ),
)
