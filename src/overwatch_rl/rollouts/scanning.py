"""The shape of a group without its numbers: most of what decoding costs is an object a token.

The JSON decoder checks the grammar and leaves rows as they are; what characters a row has then shows that it
is flat, has so many values, and no value that is out of range. Rules: whatever is not plain is left to the
exact way, which names faults; nothing passes here that the exact way would refuse. Must not know faults.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from overwatch_rl.rollouts.wire import Scored

_ROWS: Final = ("advantages", "ref_logprobs", "inference_logprobs")
_OF_MASKS: Final = b"-"
_OF_NUMBERS: Final = b"-+.e"
_LONG_INTEGER: Final = 19
"""So many digits, and an integer may have more than 63 bits."""
_LONG_NUMBER: Final = 300
"""So many digits, and a number may be larger than a float."""

_RawRows = list[Raw] | UnsetType | None


class _Scan(Scored, frozen=True, kw_only=True, gc=False):
    """A group whose rows stay bytes."""

    tokens: Annotated[list[Raw], Meta(min_length=1)]  # type: ignore[assignment]
    masks: list[Raw]  # type: ignore[assignment]
    advantages: _RawRows = UNSET  # type: ignore[assignment]
    ref_logprobs: _RawRows = UNSET  # type: ignore[assignment]
    inference_logprobs: _RawRows = UNSET  # type: ignore[assignment]


_DECODER: Final = msgspec.json.Decoder(_Scan)


class _DoubtError(Exception):
    """A row that has to be decoded."""


def scanned(body: bytes) -> Scored | None:
    """The group of a body, its rows as ranges of their length; `None` where it has to be decoded."""
    try:
        scan = _DECODER.decode(body)
        lengths: dict[str, Any] = {
            "tokens": _lengths(scan.tokens, b"", _LONG_INTEGER),
            "masks": _lengths(scan.masks, _OF_MASKS, _LONG_INTEGER),
        }
        for name in _ROWS:
            rows = getattr(scan, name)
            if rows:
                lengths[name] = _lengths(rows, _OF_NUMBERS, _LONG_NUMBER)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, _DoubtError):
        return None
    return msgspec.structs.replace(scan, **lengths)


def _lengths(rows: Sequence[Any], signs: bytes, long: int) -> list[range]:
    """As many values as each flat row of numbers has; raises `_DoubtError` for any other rows.

    Numbers are written with digits and `signs`, with fewer than `long` digits in a row.
    """
    if not rows:
        return []
    data = b"".join(rows)
    text = np.frombuffer(data, np.uint8)
    digits, commas = text - ord("0") < 10, text == ord(",")
    inside = digits | commas | (text <= ord(" "))
    for sign in signs:
        inside |= text == sign
    if np.count_nonzero(inside) != len(data) - 2 * len(rows) or _has_run(digits, long):
        raise _DoubtError
    if b"e" in signs:
        # A large exponent makes a large number of few digits.
        exponents = text[:-1] == ord("e")
        if np.count_nonzero(exponents) != np.count_nonzero(exponents & (text[1:] == ord("-"))):
            raise _DoubtError
    found, start = [], 0
    for row in rows:
        end = start + len(memoryview(row))
        if data[start] != ord("[") or data[end - 1] != ord("]"):
            raise _DoubtError
        count = np.count_nonzero(commas[start:end])
        found.append(range(count + 1 if count or digits[start:end].any() else 0))
        start = end
    return found


def _has_run(digits: "np.ndarray[Any, np.dtype[np.bool_]]", length: int) -> bool:
    """Whether so many digits follow each other anywhere."""
    seen = 1
    while seen < length:
        step = min(seen, length - seen)
        digits = digits[:-step] & digits[step:]
        seen += step
    return bool(digits.any())
