"""What a word means: the rows that are spelt so, by the nearest kind of spelling that any row has.

Pure, and of any rows: the SDK and `overwatch catalog show` ask the same. Must not know scopes.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from overwatch.catalog.alias import Library
from overwatch.catalog.libraries import aliases_of
from overwatch.catalog.metric import Metric
from overwatch.catalog.names import prometheus_name

_APART: Final = re.compile(r"[^\w/]+|_+")
Kinds = tuple[Callable[[Metric, str], bool], ...]


def letters(word: str) -> str:
    """A name without what people write differently.

    >>> letters("Approx KL") == letters("ApproxKL") == letters("approx-kl")
    True
    """
    return _APART.sub("", word.lower())


@cache
def _letters_of(row: Metric) -> frozenset[str]:
    aliases = (alias.name for alias in row.aliases if alias.library is Library.PLAIN)
    return frozenset(map(letters, (row.short, *aliases)))


_KINDS: Final[Kinds] = (
    lambda row, word: word == row.name,
    lambda row, word: word == row.short,
    lambda row, word: any(word == alias.name for alias in aliases_of(row) if alias.is_common),
    lambda row, word: word == prometheus_name(row),
    lambda row, word: word.upper() in row.tele,
    lambda row, word: letters(word) in _letters_of(row),
    lambda row, word: word.lower() == row.label.lower(),
)
"""From the surest to the loosest."""


def spelt(word: str, rows: Sequence[Metric]) -> tuple[Metric, ...]:
    """The rows of some that a word means; several where it is as near to each."""
    for is_spelt in _KINDS:
        found = tuple(row for row in rows if is_spelt(row, word))
        if found:
            return found
    return ()
