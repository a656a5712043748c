"""TorchRL: keys of its trainers and losses, and tags of its examples."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.TORCHRL)
_last: Final = partial(_key, moment=Moment.LAST_EPOCH)
_LEFT: Final = {
    "loss_entropy": "minus the entropy times its coefficient",
    "explained_variance": "of one minibatch while it is learned from; the row is before the update",
    "max_ratio": "the mean of the minibatches' largest ratios",
    "ESS": "how far this update has moved from the policy that acted; the row is of the experience's age",
    "value_clip_fraction": "the mean of minibatches; the trainer leaves it out unless values are clipped",
    "r_training": "what one step paid",
    "r_training_std": "how much what one step paid differed",
    "r_max": "what one step paid at most",
    "r_total": "what all steps of a batch paid",
}

NAMES: Final = Names(
    library=Library.TORCHRL,
    version="0.14.1",
    is_run=True,
    rows={
        "policy_loss": (
            _last(name="loss_objective"),
            _last(name="loss_actor"),
            _key(name="train/loss_objective"),
            _key(name="train/loss_actor"),
        ),
        "value_loss": (
            _last(name="loss_critic"),
            _last(name="loss_value"),
            _last(name="loss_qvalue"),
            _key(name="train/loss_critic"),
        ),
        "kl_k1": (
            _last(name="kl_approx", estimator=Estimator.K1),
            _key(name="train/kl_approx", estimator=Estimator.K1),
        ),
        "clip_fraction": (
            _last(name="clip_fraction"),
            _key(name="train/clip_fraction", is_bare=True),
        ),
        # In nats; elsewhere the word is that of a share.
        "entropy_nats": (
            _last(name="entropy", is_bare=True),
            _key(name="train/entropy", is_bare=True),
        ),
        # Before clipping; of the first optimiser where there are several.
        "grad_norm": (
            _last(name="grad_norm_0"),
            _last(name="grad_norm", is_bare=True),
        ),
        "ratio_mean": (
            _last(name="mean_ratio"),
            _key(name="train/mean_ratio"),
        ),
        "learning_rate": (_key(name="train/lr", is_bare=True),),
        "return": (_key(name="train/reward", is_bare=True),),
        "eval_return": (_key(name="eval/reward"),),
        "episode_length": (_key(name="train/episode_length", is_bare=True),),
    },
    left=MappingProxyType({**_LEFT, **{f"train/{name}": reason for name, reason in _LEFT.items()}}),
)
