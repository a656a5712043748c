"""Text that is safe to show: control, escape and direction characters from telemetry become visible.

Pure. Recordings keep the raw text; only what is projected passes here.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

MAX_TEXT = 500
"""Longest text a view gets, in characters."""


def safe(text: str) -> str:
    """The text without anything that could move a cursor, colour a screen or reverse its direction."""
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    return text if text.isascii() and text.isprintable() else _shown(text)


@lru_cache(maxsize=4096)
def _shown(text: str) -> str:
    """A line stands in the feed for many frames; it is made safe once."""
    return "".join(_visible(character) for character in text)


def safe_all(names: Iterable[str]) -> tuple[str, ...]:
    """`safe` for names that are shown at every tick."""
    return _all_shown(tuple(names))


@lru_cache(maxsize=64)
def _all_shown(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(safe, names))


def safe_or_none(text: str | None) -> str | None:
    """`safe` for text that may be absent."""
    return None if text is None else safe(text)


def safe_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """`safe` for names and values."""
    return {safe(name): safe(value) for name, value in fields.items()}


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return (
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else character
    )
