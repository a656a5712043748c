"""Ray Tune: keys that it fills in itself; everything else is named by the trainable."""

from functools import partial
from typing import Final

from overwatch.catalog.alias import Alias, Library
from overwatch.catalog.libraries.base import Names

_key: Final = partial(Alias, library=Library.RAY_TUNE)

NAMES: Final = Names(
    library=Library.RAY_TUNE,
    version="2.60.0",
    is_run=True,
    rows={"update_time": (_key(name="time_this_iter_s"),)},
)
