"""What must be known of a body before it is accepted: that it is a request, and how much of it can be used.

Rules: parts are counted before any is made; another process that checks says the same as this one would,
refusals among it. Must not know what becomes of a body.
"""

from typing import TypeAlias, assert_never

import msgspec

from overwatch.journal import Signal
from overwatch.otlp import elements, jsonl, validate
from overwatch.otlp.decode import decode
from overwatch.otlp.packed import packed
from overwatch.otlp.wire import MalformedBody


class Sound(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A body that is a request."""

    counts: validate.Counts
    data: bytes | None
    """It as protobuf, where it came as JSON."""
    said: bytes | None
    """What it says, `packed`; `None` where that is for the fold to find again."""


class TooMany(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A body of more parts than are allowed."""

    message: str


class Malformed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A body that is no request."""

    message: str


_Verdict: TypeAlias = Sound | TooMany | Malformed
# msgspec learns a type at its first use, and crashes where two threads are the first: these ones are.
_written = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(_Verdict).decode


def as_protobuf(signal: Signal, body: bytes, limit: int, *, json: bool) -> bytes:
    """A body whose parts are no more than `limit`; raises `TooManyElements`, or `MalformedJson`."""
    if json:
        elements.check_json(body, limit)
        body = jsonl.from_json(signal, body)
    elements.check_protobuf(signal, body, limit)
    return body


def verdict(signal: Signal, body: bytes, limit: int, *, json: bool) -> bytes:
    """What is to be said of a body, for another process."""
    return _written(_verdict(signal, body, limit, json=json))


def heard(words: bytes) -> Sound:
    """What another process said; raises `TooManyElements`, `MalformedBody`, `DecodeError` for no verdict."""
    said: _Verdict = _read(words)
    match said:
        case Sound():
            return said
        case TooMany():
            raise elements.TooManyElements(said.message)
        case Malformed():
            raise MalformedBody(said.message)
        case _:
            assert_never(said)


def _verdict(signal: Signal, body: bytes, limit: int, *, json: bool) -> _Verdict:
    try:
        data = as_protobuf(signal, body, limit, json=json)
        found = decode(signal, data)
    except elements.TooManyElements as error:
        return TooMany(message=str(error))
    except (MalformedBody, jsonl.MalformedJson) as error:
        return Malformed(message=str(error))
    counts = validate.counts_of(found)
    return Sound(counts=counts, data=data if json else None, said=packed(found, len(body)))
