"""Rows of numbers as they are written: what they hold is judged, and no object is made of a number.

A row may have millions of numbers, and an object each is what costs. The JSON decoder has checked the grammar
and left rows as bytes; which characters they have shows how many values there are, and which of them may be
no number of their kind. Those few are decoded one by one. Must not know fields, groups or HTTP.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch_rl.rollouts.wire import Mask, Token
from overwatch_rl.web.faults import Fault, InvalidError, place

Characters: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]

_SMALL: Final = 1 << 12
"""Bytes of a value that is decoded whole: that costs less than looking at it."""
_ENDS: Final = b",[] \t\n\r"
_LONG_FORM: Final = b"," + b"1" * 19
_LARGE_FORM: Final = re.compile(rb"e\+?111")
_LONG: Final = re.compile(rb"(?<![\d.])\d{19}|e\+?\d{3}", re.IGNORECASE)
_MOST_DOUBTFUL: Final = 1 << 16
"""Most numbers that are decoded one by one."""
_BLOCK: Final = 1 << 18
"""Bytes that are judged at once."""
_SHOWN: Final = 60
_NUMBER: Final = re.compile(rb"[-\d]")
_MOST_INTEGER: Final = 1 << 63


class Kind:
    """What the values of rows are."""

    def __init__(self, kind: Any, signs: bytes) -> None:
        """`signs` are characters of usual values, beside digits."""
        self.decoder = msgspec.json.Decoder(kind)
        self.rows = {
            1: msgspec.json.Decoder(list[kind]),
            2: msgspec.json.Decoder(list[list[kind]]),
            3: msgspec.json.Decoder(list[list[list[kind]]]),
        }
        """Of lists of so many levels."""
        self.plain = _ENDS + b"0123456789" + signs
        """Characters of usual values."""
        self._forms = bytes(_form(at) if at in self.plain else ord("!") for at in range(256))

    def is_plain(self, part: bytes) -> bool:
        """Whether all numbers of a part are of this kind at first sight.

        An integer may have more than 63 bits from 19 digits on, and a number with an exponent of three digits
        may be no float.
        """
        forms = part.translate(self._forms)
        return not (b"!" in forms or _LONG_FORM in forms or _LARGE_FORM.search(forms))


def _form(character: int) -> int:
    """Digits as 1, what is beside an integer as a comma."""
    if character in b"0123456789":
        return ord("1")
    return character | ord(" ") if character in b".+eE" else ord(",")


TOKENS: Final = Kind(Token, b"")
MASKS: Final = Kind(Mask, b"-")
NUMBERS: Final = Kind(float, b"-+.eE")


def lengths(value: bytes, kind: Kind, level: int) -> list[int]:
    """How many values each row of a JSON value has; raises `InvalidError`.

    Numbers stand `level` lists deep. A row is a list of the second level, or of the first where that is all.
    """
    if len(value) < _SMALL and kind.is_plain(value):
        with contextlib.suppress(msgspec.MsgspecError):
            rows = kind.rows[level].decode(value)
            return [len(rows)] if level == 1 else [len(row) for row in rows]
    for number, (start, end) in enumerate(_doubtful(value, kind)):
        fault = _fault_of(value[start:end], kind)
        if number == _MOST_DOUBTFUL:
            fault = "has too many numbers like this one; write them as json.dumps does"
        if fault is not None:
            raise InvalidError(Fault(place(value, start), fault))
    return measured(value, level)


def measured(value: bytes, level: int) -> list[int]:
    """As `lengths`, of values that are numbers all."""
    if value[:1] != b"[":
        raise InvalidError(Fault("", f"is no list; send {'a list of ' * (level - 1)}a list"))
    at, is_open, digits, commas = _segments(value)
    depths = np.cumsum(np.where(is_open, 1, -1))
    wrong = np.flatnonzero((depths > level) | ((depths < level) & digits))
    if len(wrong):
        is_deep = depths[wrong[0]] > level
        what = "Expected a number, got `array`" if is_deep else "Expected `array`, got a number"
        start = int(at[wrong[0]])
        number = None if is_deep else _NUMBER.search(value, start)
        raise InvalidError(Fault(place(value, number.start() if number else start), what))
    rows = np.flatnonzero(is_open & (depths == min(level, 2)))
    if not len(rows):
        return []
    if level > 2:
        counts = np.add.reduceat(is_open & (depths == level), rows, dtype=np.int64)
    else:
        counts = np.where(digits[rows], commas[rows] + 1, 0)
    found: list[int] = counts.tolist()
    return found


def _blocks(value: bytes) -> Iterator[tuple[int, Characters]]:
    """Parts that a processor's cache can hold, each with its place; no number is cut."""
    start = 0
    while start < len(value):
        comma = value.find(b",", start + _BLOCK)
        end = len(value) if comma < 0 else comma + 1
        yield start, np.frombuffer(value, np.uint8, end - start, start)
        start = end


def _segments(value: bytes) -> tuple[Ints, Bools, Bools, Ints]:
    """By bracket: where it is, whether it opens a list, and if digits and how many commas follow it."""
    parts: list[tuple[Ints, Bools, Bools, Ints]] = []
    for block, text in _blocks(value):
        is_open = text == ord("[")
        at = np.flatnonzero(is_open | (text == ord("]")))
        digits, commas = text - ord("0") < 10, np.flatnonzero(text == ord(","))
        before = np.searchsorted(commas, np.append(at, len(text)))
        if parts and before[0] > 0:
            parts[-1][2][-1] |= digits[: at[0] if len(at) else len(text)].any()
            parts[-1][3][-1] += before[0]
        if len(at):
            parts.append((at + block, is_open[at], np.logical_or.reduceat(digits, at), np.diff(before)))
    at, is_open, digits, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return at, is_open, digits, counts


def _doubtful(value: bytes, kind: Kind) -> Iterator[tuple[int, int]]:
    """Where values begin and end that are not plainly of a kind, in order."""
    for block, text in _blocks(value):
        part = text.tobytes()
        if kind.is_plain(part):
            continue
        at = [found.start() for found in re.finditer(rb"[^%b]" % re.escape(kind.plain), part)]
        borders = np.flatnonzero(np.isin(text, list(_ENDS)))
        at += [found.start() for found in _LONG.finditer(part)]
        for after in np.unique(np.searchsorted(borders, at)):
            start = borders[after - 1] + 1 if after else 0
            end = borders[after] if after < len(borders) else len(part)
            yield int(block + start), int(block + end)


def _fault_of(value: bytes, kind: Kind) -> str | None:
    """Why a value is none of a kind; `None` where it is one."""
    shown = value[:_SHOWN].decode(errors="replace")
    try:
        kind.decoder.decode(value)
    except msgspec.ValidationError as error:
        return f"{error}: {shown}"
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return f"Expected a number, got {shown}"
    if kind is NUMBERS and value.lstrip(b"-").isdigit() and abs(int(value)) >= _MOST_INTEGER:
        return f"is an integer of more than 64 bits: {shown}; send a number that is smaller, or has a point"
    return None
