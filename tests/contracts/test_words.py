"""Identifiers and prose are in the words of the field, which a stranger can search for."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.trees import SRC

ROOT: Final = SRC.parent

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

UNWRITTEN: Final = re.compile(
    r"\b(tells?|telling|told|says?|saying|said|hears?|hearing|heard|whom(?:ever)?|chutes?|shelf|shelves)\b",
    re.IGNORECASE,
)
"""What prose does without: emit, report, send, state, show, receive, name or mean is more exact."""

PLACES: Final = ("src", "tests", "docs", "helm", "docker", "dashboards", "otel", "examples")
PAGES: Final = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "mkdocs.yml", "pyproject.toml")

EXCEPTIONS: Final = {
    ("docs/diagnosis.md", "say"): "an example of a factor, with its argument",
    ("tests/overwatch/diagnose/test_plugins.py", "say"): "a factor in a file of its own, with its argument",
    ("tests/calibration/recorded.py", "told"): "a key of recordings that were made before",
    ("tests/libraries/judged.json", "said"): "a key of the file",
    ("tests/libraries/judged.py", "said"): "the same key",
    ("src/overwatch/web/panels/env.js", "told"): "an identifier of the page",
    ("src/overwatch/web/panels/parts.js", "said"): "an identifier of the page, a type",
}
"""Words that stay, each by its file, with the reason."""


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


def prose_of(text: str, suffix: str) -> Iterator[str]:
    """What people read of a file: of Python the comments, the docstrings and all other strings."""
    if suffix != ".py":
        yield text
        return
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
    nodes = ast.walk(ast.parse(text))
    yield from (
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def unwritten_in(text: str, suffix: str) -> set[str]:
    """The words that a text should do without."""
    return {word.lower() for prose in prose_of(text, suffix) for word in UNWRITTEN.findall(prose)}


def _texts() -> Iterator[tuple[str, str]]:
    """Every file that has prose; of the changelog what is not released."""
    files = [path for place in PLACES for path in sorted((ROOT / place).rglob("*")) if path.is_file()]
    for path in [*files, *(ROOT / page for page in PAGES)]:
        if "__pycache__" in path.parts or path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # A picture.
            continue
        if path.name == "CHANGELOG.md":
            text = "".join(re.split(r"(?m)^## \[", text)[:2])
        yield path.relative_to(ROOT).as_posix(), text


def test_prose_avoids_words_that_are_not_exact() -> None:
    """Exactly the exceptions are left, so none of them is stale."""
    found = {(name, word) for name, text in _texts() for word in unwritten_in(text, Path(name).suffix)}

    assert sorted(found - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - found) == []


@pytest.mark.parametrize(
    ("text", "suffix", "words"),
    [
        ("x = 1  # The log says why.", ".py", {"says"}),
        ('"""Whom it asks, and what it was Told."""', ".py", {"whom", "told"}),
        ('fail(f"{name} said {what}")', ".py", {"said"}),
        ("told = factor.say(tell=1)", ".py", set()),
        ("It states why; `told_so` is a name.", ".md", set()),
        ("Shelves, CHUTES and hearing.", ".md", {"shelves", "chutes", "hearing"}),
    ],
)
def test_prose_is_searched_and_identifiers_are_not(text: str, suffix: str, words: set[str]) -> None:
    """In comments, docstrings and messages, in whatever case."""
    assert unwritten_in(text, suffix) == words
