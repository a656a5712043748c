"""rl_games: tags of its agents, their observer and their diagnostics."""

from functools import partial
from types import MappingProxyType
from typing import Final

from overwatch.catalog.alias import Alias, Library, Moment
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RL_GAMES)
_all: Final = partial(_key, moment=Moment.ALL_EPOCHS)

NAMES: Final = Names(
    library=Library.RL_GAMES,
    version="1.6.5",
    is_run=True,
    rows={
        # Exact for continuous actions; k2 for discrete ones.
        "kl_divergence": (_all(name="info/kl"),),
        "explained_variance": (_all(name="diagnostics/exp_var"),),
        "learning_rate": (_key(name="info/last_lr"),),
        "policy_loss": (_all(name="losses/a_loss"),),
        "value_loss": (_all(name="losses/c_loss"),),
        "return": (_key(name="rewards/step"),),
        "entropy_nats": (_all(name="losses/entropy"),),
        "clip_range": (_key(name="info/e_clip"),),
        "episode_length": (_key(name="episode_lengths/step"),),
    },
    left=MappingProxyType(
        {
            "rewards/iter": "rewards/step by another axis",
            "rewards/time": "rewards/step by another axis",
            "rewards[0-9]*": "one of several values of a reward, each with a critic",
            "shaped_rewards*": "after the reward shaper; the row is what the environment paid",
            "losses/bounds_loss": "a penalty for actions out of bounds, with its weight",
            "losses/cval_loss": "of the central critic, beside the policy's own",
            "losses/c1_loss": "of one of SAC's two critics",
            "losses/c2_loss": "of one of SAC's two critics",
            "losses/alpha_loss": "of SAC's temperature",
            "info/cval_lr": "of the central critic",
            "diagnostics/clip_frac/*": "of one epoch; the row is of all",
            "diagnostics/rms_value/*": "of the normaliser of values",
        }
    ),
)
