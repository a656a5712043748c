"""PufferLib: keys of its logger."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.PUFFERLIB)

NAMES: Final = Names(
    library=Library.PUFFERLIB,
    version=None,
    is_run=False,
    rows={
        "return": (_key(name="environment/episode_return"),),
        "entropy_nats": (_key(name="losses/entropy"),),
        "episode_length": (_key(name="environment/episode_length"),),
    },
)
