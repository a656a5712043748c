"""Which library writes: the one whose table has most of the names that were seen.

Rules: a name that means something in one library only when that library is known proves nothing, nor does a
single word, which people write by hand. Of equals the first in the order of `LIBRARIES` is taken. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from overwatch.catalog.alias import Library
from overwatch.catalog.libraries import LIBRARIES


def library_of(names: Iterable[str]) -> Library | None:
    """The library that has most of these names; `None` where no library has any.

    >>> library_of(["losses/value_loss", "charts/SPS", "charts/episodic_return"])
    <Library.CLEANRL: 'CleanRL'>
    >>> library_of(["loss", "accuracy"])
    """
    votes = Counter(library for name in names for library in _owners().get(name, ()))
    order = [one.library for one in LIBRARIES]
    return max(votes, key=lambda library: (votes[library], -order.index(library)), default=None)


@cache
def _owners() -> Mapping[str, tuple[Library, ...]]:
    """By name, the libraries that have it."""
    owners: dict[str, tuple[Library, ...]] = {}
    for one in LIBRARIES:
        aliases = (alias for row in one.rows.values() for alias in row)
        for name in {alias.name for alias in aliases if not alias.is_bare} | set(one.left):
            if not name.isalpha():
                owners[name] = (*owners.get(name, ()), one.library)
    return owners
