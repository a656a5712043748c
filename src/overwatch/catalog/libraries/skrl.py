"""skrl: tags of its tracking."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SKRL)

NAMES: Final = Names(
    library=Library.SKRL,
    version="2.1.1",
    is_run=True,
    rows={
        "learning_rate": (_key(name="Learning / Learning rate"),),
        "policy_loss": (_key(name="Loss / Policy loss"),),
        "value_loss": (
            _key(name="Loss / Value loss"),
            _key(name="Loss / Critic loss"),
        ),
        "return": (_key(name="Reward / Total reward (mean)"),),
        "action_std": (_key(name="Policy / Standard deviation"),),
        "episode_length": (_key(name="Episode / Total timesteps (mean)"),),
    },
)
