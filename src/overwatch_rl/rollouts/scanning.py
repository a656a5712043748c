"""The shape of a group without its numbers: most of what decoding costs is an object a token.

The JSON decoder checks the grammar and leaves rows as they are; what characters a row has then tells that it
is flat, has so many values, and no value that is out of range. Rules: whatever is not plain is left to the
exact way, which names faults; nothing passes here that the exact way would refuse. Must not know faults.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from overwatch_rl.rollouts.wire import Scored

_ROWS: Final = ("advantages", "ref_logprobs", "inference_logprobs")
_SPACE: Final = b" \t\r\n"
_OF_TOKENS: Final = b"0123456789" + _SPACE
_OF_MASKS: Final = _OF_TOKENS + b"-"
_OF_NUMBERS: Final = _OF_MASKS + b"+.e"
_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LARGE_INTEGER: Final = b"0" * 19
"""So many digits, and an integer may have more than 63 bits."""
_LARGE_NUMBER: Final = b"0" * 300
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
            "tokens": [_integers(row, _OF_TOKENS) for row in scan.tokens],
            "masks": [_integers(row, _OF_MASKS) for row in scan.masks],
        }
        for name in _ROWS:
            rows = getattr(scan, name)
            if rows:
                lengths[name] = [_numbers(row) for row in rows]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, _DoubtError):
        return None
    return msgspec.structs.replace(scan, **lengths)


def _integers(row: Any, allowed: bytes) -> range:
    """As many as a flat row of integers below 10^18 has; raises `_DoubtError` for any other."""
    data = bytes(row)
    if _LARGE_INTEGER in data.translate(_ZEROS):
        raise _DoubtError
    return _count(data, allowed)


def _numbers(row: Any) -> range:
    """As many as a flat row of finite numbers has; raises `_DoubtError` for any other."""
    data = bytes(row)
    if data.count(b"e") != data.count(b"e-") or (
        len(data) > len(_LARGE_NUMBER) and _LARGE_NUMBER in data.translate(_ZEROS)
    ):
        raise _DoubtError
    return _count(data, _OF_NUMBERS)


def _count(data: bytes, allowed: bytes) -> range:
    """Values of a JSON value that is an array of what is written with these characters."""
    left = data.translate(None, allowed)
    if left[:1] != b"[" or left[-1:] != b"]" or left[1:-1].strip(b","):
        raise _DoubtError
    commas = len(left) - 2
    return range(commas + 1 if commas or data.strip(b"[]" + _SPACE) else 0)
