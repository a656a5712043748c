"""Which library writes: the one whose table has most of the names that the catalogue itself does not have.

Rules: a word of the catalogue proves nothing, nor does a name that means something in a library only when
that library is known, nor a single word, which people write by hand. A word of the catalogue that a library
does not have speaks against it, unless a path that no other library writes is beside more of its names. Of
equals the first in the order of `LIBRARIES` is the library. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from overwatch.catalog import is_word
from overwatch.catalog.alias import Library
from overwatch.catalog.libraries import LIBRARIES
from overwatch.catalog.libraries.base import Names

LEAST_SHARE: Final = 0.05
"""Of all names; RLlib's table has an eighth of what it logs, for there are many modules and connectors."""

_ENOUGH: Final = 3
"""Names of a library that show it, with a path among them that no other library writes."""


def library_of(names: Iterable[str]) -> Library | None:
    """The library that has most of these names; `None` where they show none.

    >>> library_of(["losses/value_loss", "charts/SPS", "charts/episodic_return"])
    <Library.CLEANRL: 'CleanRL'>
    >>> library_of(["return", "kl", "clip_fraction", "value_loss"]), library_of(["train/value_loss"])
    (None, None)
    """
    seen = tuple(names)
    votes = Counter(library for name in seen for library in _owners().get(name, ()))
    words = [name for name in seen if is_word(name)]
    shown = [
        (votes[table.library], table.library)
        for table in LIBRARIES
        if votes[table.library] > max(LEAST_SHARE * len(seen), _against(table, seen, words))
    ]
    return max(shown, key=lambda vote: vote[0], default=(0, None))[1]


def _against(table: Names, seen: Sequence[str], words: Sequence[str]) -> int:
    """How many words speak against a library: those that it does not have, or none where it is shown."""
    is_shown = any("/" in name and _owners().get(name) == (table.library,) for name in seen)
    if is_shown and sum(_has(table, name) for name in seen) >= _ENOUGH:
        return 0
    return sum(not _has(table, word) for word in words)


def _has(table: Names, name: str) -> bool:
    return name in _names(table.library) or table.leaves(name)


@cache
def _names(library: Library) -> frozenset[str]:
    tables = (table for table in LIBRARIES if table.library is library)
    return frozenset(alias.name for table in tables for row in table.rows.values() for alias in row)


@cache
def _owners() -> Mapping[str, tuple[Library, ...]]:
    """By name that shows a library, the libraries that have it."""
    owners: dict[str, tuple[Library, ...]] = {}
    for one in LIBRARIES:
        aliases = (alias for row in one.rows.values() for alias in row)
        for name in {alias.name for alias in aliases if not alias.is_bare} | set(one.left):
            if not name.isalpha() and not is_word(name):
                owners[name] = (*owners.get(name, ()), one.library)
    return owners
