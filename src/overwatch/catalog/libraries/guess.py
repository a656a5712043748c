"""Which library writes: the one whose table has most of the names that were seen.

Rules: a name that means something in one library only when that library is known proves nothing. Of equals
the first in the order of `LIBRARIES` is taken. Pure.
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


def parse_library(name: str) -> Library:
    """The library of a name as people write it; raises `ValueError` that names the known ones.

    >>> parse_library("sample_factory")
    <Library.SAMPLE_FACTORY: 'Sample Factory'>
    """
    found = {_plain(one.library.value): one.library for one in LIBRARIES}.get(_plain(name))
    if found is None:
        known = ", ".join(one.library.value for one in LIBRARIES)
        raise ValueError(f"no library is called {name!r}; there is {known}")
    return found


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@cache
def _owners() -> Mapping[str, tuple[Library, ...]]:
    """By name, the libraries that have it."""
    owners: dict[str, tuple[Library, ...]] = {}
    for one in LIBRARIES:
        aliases = (alias for row in one.rows.values() for alias in row)
        for name in {alias.name for alias in aliases if not alias.is_bare} | set(one.left):
            owners[name] = (*owners.get(name, ()), one.library)
    return owners
