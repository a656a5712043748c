"""Sample Factory: tags of its summaries."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.SAMPLE_FACTORY)

NAMES: Final = Names(
    library=Library.SAMPLE_FACTORY,
    version="2.1.1",
    is_run=False,
    rows={
        "policy_loss": (_key(name="train/policy_loss"),),
        "return": (_key(name="reward/reward"),),
        "episode_length": (_key(name="len/len"),),
    },
)
