"""Styled text measured in terminal cells: spans, lines, and cutting without ever splitting a character.

Owns the one door through which foreign text comes onto the screen (`clean`) and the rule that a line is
exactly as wide as it was asked to be. Must not know colours, snapshots or the terminal.
"""

import unicodedata
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from rich.cells import get_character_cell_size

_MOST_MARKS: Final = 2
"""Combining marks kept on one character; more only hide the lines above and below."""
_OF_NUMBERS: Final = "0123456789.,+-%"
_UNSAFE: Final = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})


class Role(Enum):
    """What a piece of text means; a theme has how that looks."""

    TEXT = "text"
    MUTED = "muted"
    TITLE = "title"
    ACCENT = "accent"
    OK = "ok"
    WARN = "warn"
    CRIT = "crit"
    INFO = "info"
    STALE = "stale"
    GOOD = "trend.good"
    BAD = "trend.bad"
    STAGE_NEW = "stage.new"
    STAGE_TRAIN = "stage.train"
    STAGE_BLEND = "stage.blend"
    STAGE_HOLD = "stage.hold"
    STAGE_DONE = "stage.done"
    STAGE_FAIL = "stage.fail"


class Span(NamedTuple):
    """A piece of text with one meaning. The text is clean."""

    text: str
    role: Role = Role.TEXT


Line: TypeAlias = tuple[Span, ...]


@lru_cache(maxsize=8192)
def clean(text: str) -> str:
    """Text that cannot steer a terminal and has the same width everywhere.

    Controls become `?`; joiners and variation selectors, on whose width terminals disagree, go; a
    character keeps at most two combining marks. Wide characters stay.
    """
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        if category == "Cf" or 0xFE00 <= ord(character) <= 0xFE0F or 0xE0100 <= ord(character) <= 0xE01EF:
            continue
        if category in _UNSAFE:
            character = "?"  # noqa: PLW2901 (the rest of the loop sees what is shown)
        size = get_character_cell_size(character)
        marks = marks + 1 if size == 0 else 0
        if marks <= _MOST_MARKS and (size or kept):
            kept.append(character)
    return "".join(kept)


def cells(text: str) -> int:
    """Width of clean text in terminal cells."""
    return len(text) if text.isascii() else _wide_cells(text)


@lru_cache(maxsize=8192)
def _wide_cells(text: str) -> int:
    return sum(map(get_character_cell_size, text))


def head(text: str, width: int) -> str:
    """The longest start of `text` that fits in `width` cells."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for index, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return text[:index]
    return text


def whole_head(text: str, width: int) -> str:
    """The longest start of `text` in `width` cells that ends in no part of a number: `12` is not `1234`."""
    kept = head(text, width)
    after = text[len(kept) : len(kept) + 1]
    if not (kept and (after.isalnum() or after in _OF_NUMBERS) and kept[-1] in _OF_NUMBERS):
        return kept
    before = kept.rstrip(_OF_NUMBERS)
    return before if before.strip() else kept


def tail(text: str, width: int) -> str:
    """The longest end of `text` that fits in `width` cells and begins with a character of its own."""
    start = len(text)
    used = 0
    for index in range(len(text) - 1, -1, -1):
        size = get_character_cell_size(text[index])
        used += size
        if used > width:
            break
        if size:
            start = index
    return text[start:]


def cut(text: str, width: int) -> str:
    """A message: cut at its end, with `…`, where it is longer than `width` cells."""
    if cells(text) <= width:
        return text
    return whole_head(text, width - 1) + "…" if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """An id: cut in its middle, so that both ends are seen."""
    if cells(text) <= width:
        return text
    if width < 3:
        return cut(text, width)
    right = (width - 1) // 3
    return head(text, width - 1 - right) + "…" + tail(text, right)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken at blanks; a longer word is cut. At least one line."""
    rows = [""]
    for word in text.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if cells(longer) <= width:
            rows[-1] = longer
        elif rows[-1]:
            rows.append(cut(word, width))
        else:
            rows[-1] = cut(word, width)
    return rows


def left(text: str, width: int) -> str:
    """Exactly `width` cells, text at the left, cut at its end if need be."""
    if len(text) <= width and text.isascii():
        return text.ljust(width)
    text = cut(text, width)
    return text + " " * (width - cells(text))


def right(text: str, width: int) -> str:
    """Exactly `width` cells, text at the right, cut at its end if need be."""
    if len(text) <= width and text.isascii():
        return text.rjust(width)
    text = cut(text, width)
    return " " * (width - cells(text)) + text


def width_of(line: Iterable[Span]) -> int:
    """Width of a line in cells."""
    return sum(cells(span.text) for span in line)


def fit(spans: Iterable[Span], width: int) -> Line:
    """A line of exactly `width` cells: cut at its end or filled with spaces."""
    line: list[Span] = []
    used = 0
    for span in spans:
        size = cells(span.text)
        if used + size > width:
            short = whole_head(span.text, width - used)
            line.append(Span(short, span.role))
            used += cells(short)
            break
        if size:
            line.append(span)
            used += size
    if used < width:
        line.append(Span(" " * (width - used)))
    return tuple(line)


def spread(start: Iterable[Span], end: Iterable[Span], width: int) -> Line:
    """A line of `width` cells with `end` at the right, one cell before the edge; `start` gives way."""
    ending = tuple(end)
    room = width - 1 - width_of(ending)
    if room < 1:
        return fit(ending, width)
    begun = fit(start, room)
    return fit((*begun, *ending), width)


def rule(title: str, note: Iterable[Span], width: int) -> Line:
    """A section's title line: `─ TITLE ───── note ─`; the note gives way when there is no room."""
    noted = tuple(note)
    opening = (Span("─ ", Role.MUTED), Span(title, Role.TITLE), Span(" "))
    room = width - width_of(opening) - 2
    if noted and width_of(noted) + 2 <= room:
        fill = "─" * (room - width_of(noted) - 1)
        return fit((*opening, Span(f"{fill} ", Role.MUTED), *noted, Span(" ─", Role.MUTED)), width)
    return fit((*opening, Span("─" * (room + 2), Role.MUTED)), width)


def labelled(rows: Iterable[tuple[str, str]], label: int, width: int, spare: int = 0) -> list[Line]:
    """Each text behind its label of so many cells, wrapped; one that is empty has no line."""
    return [
        fit([Span(left("" if place else name, label), Role.MUTED), Span(part)], width)
        for name, text in rows
        for place, part in enumerate(wrapped(text, max(8, width - label - spare)) if text else ())
    ]


def blank(width: int) -> Line:
    """An empty line."""
    return (Span(" " * width),)


def plain(line: Line) -> str:
    """The characters of a line."""
    return "".join(span.text for span in line)
