"""rl_games: tags of its observer."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RL_GAMES)

NAMES: Final = Names(
    library=Library.RL_GAMES,
    version="1.6.5",
    is_run=False,
    rows={
        "kl_divergence": (
            _key(
                name="info/kl",
                estimator=Estimator.EXACT,
                moment=Moment.ALL_EPOCHS,
            ),
        ),
        "learning_rate": (_key(name="info/last_lr"),),
        "policy_loss": (_key(name="losses/a_loss"),),
        "value_loss": (_key(name="losses/c_loss"),),
        "return": (
            _key(name="rewards/step"),
            _key(name="rewards/iter"),
        ),
        "entropy_nats": (_key(name="losses/entropy"),),
        "episode_length": (
            _key(name="episode_lengths/step"),
            _key(name="episode_lengths/iter"),
        ),
    },
)
