"""Identifiers are in the words of the field, which a stranger can search for."""

import io
import re
import tokenize
from typing import Final

from tests.contracts.trees import SRC

BANNED: Final = frozenset((
    "anybody", "ask", "asked", "asking", "asks", "chute", "crowd", "door", "farewell", "fortune", "hear",
    "heard", "hears", "hush", "hushed", "nobody", "parcel", "said", "say", "saying", "says", "shelf",
    "somebody", "tell", "telling", "tells", "told", "whoever", "whom",
))  # fmt: skip
"""Emit, report, log, receive, request, query, listener, mute, queue: one of these names what is meant."""

PUBLIC: Final = {
    "asks": "a key of `overwatch catalog list --format json`",
    "crowd": "a limit in the collector's configuration",
    "say": "an argument of `Factor`, which installed factors give",
    "tell": "an argument of `Factor`; the position in a file, by Python's own name",
}
"""Identifiers that stay as they are, each with who knows it."""


def words_of(name: str) -> set[str]:
    """The words of an identifier.

    >>> sorted(words_of("_saidBefore")), sorted(words_of("TELL_S"))
    (['before', 'said'], ['s', 'tell'])
    """
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")) - {""}


def test_identifiers_avoid_words_of_their_own() -> None:
    """In all of `src`, the names of files and folders too."""
    found = {}
    for path in SRC.rglob("*.py"):
        names = set(path.relative_to(SRC).with_suffix("").parts)
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        names |= {token.string for token in tokens if token.type == tokenize.NAME}
        wrong = sorted(name for name in names - PUBLIC.keys() if words_of(name) & BANNED)
        if wrong:
            found[str(path.relative_to(SRC))] = wrong

    assert found == {}
