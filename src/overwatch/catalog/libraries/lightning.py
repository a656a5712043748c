"""Lightning: keys of its callbacks and of its examples that learn from rewards; all others are the user's."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.LIGHTNING, is_bare=True)

NAMES: Final = Names(
    library=Library.LIGHTNING,
    version="2.6.6",
    is_run=True,
    rows={
        "policy_loss": (_key(name="loss_actor"), _key(name="Loss/policy_loss")),
        "value_loss": (_key(name="loss_critic"), _key(name="Loss/value_loss")),
        "return": (_key(name="avg_ep_reward"), _key(name="Rewards/rew_avg")),
        "episode_length": (_key(name="avg_ep_len"), _key(name="Game/ep_len_avg")),
        "learning_rate": (_key(name="lr-Adam"), _key(name="lr-AdamW"), _key(name="Info/learning_rate")),
        "grad_norm": (_key(name="grad_2.0_norm_total"),),
    },
    left={
        "avg_reward": "is the mean reward of a step, not a return",
        "Loss/entropy_loss": "is minus the entropy times its coefficient, which differs",
        "grad_*": "is of one parameter",
        "lr-*": "is of another optimiser, or no learning rate",
    },
)
