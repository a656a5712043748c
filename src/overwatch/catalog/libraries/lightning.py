"""Lightning: keys of its own; everything else is named by the user."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.LIGHTNING)

NAMES: Final = Names(
    library=Library.LIGHTNING,
    version="2.6.6",
    is_run=False,
    rows={
        "learning_rate": (_key(name="lr-Adam"), _key(name="lr-AdamW"), _key(name="lr-SGD")),
        "grad_norm": (_key(name="grad_2.0_norm_total"),),
    },
)
