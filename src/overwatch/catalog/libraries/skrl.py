"""skrl: tags of its tracking."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SKRL)
_EXTREMES: Final = ("max", "min")

NAMES: Final = Names(
    library=Library.SKRL,
    version="2.1.1",
    is_run=True,
    rows={
        "learning_rate": (
            _key(name="Learning / Learning rate"),
            _key(name="Learning / Policy learning rate"),
        ),
        "policy_loss": (_key(name="Loss / Policy loss"),),
        "value_loss": (
            _key(name="Loss / Value loss"),
            _key(name="Loss / Critic loss"),
            _key(name="Loss / Q-network loss"),
        ),
        "return": (_key(name="Reward / Total reward (mean)"),),
        "action_std": (_key(name="Policy / Standard deviation"),),
        "episode_length": (_key(name="Episode / Total timesteps (mean)"),),
        "epsilon": (_key(name="Exploration / Exploration epsilon"),),
    },
    left=MappingProxyType(
        {
            # The adapter knows the coefficient and divides by it.
            "Loss / Entropy loss": "minus entropy times a coefficient; of SAC the coefficient's loss",
            "Loss / Discriminator loss": "of a network that is neither policy nor critic",
            "Learning / Critic learning rate": "of the critic; the row has the policy's",
            "Learning / Value learning rate": "of the critic; the row has the policy's",
            "Coefficient / Entropy coefficient": "the weight of the entropy, not the entropy",
            "Coefficient / Return threshold": "what selects episodes, not what they earned",
            "Coefficient / Mean discounted returns": "discounted; the row is what episodes earned",
            **{f"Reward / Total reward ({of})": "not the mean" for of in _EXTREMES},
            **{f"Reward / Instantaneous reward ({of})": "of one step" for of in (*_EXTREMES, "mean")},
        }
    ),
)
