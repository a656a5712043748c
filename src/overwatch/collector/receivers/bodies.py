"""Bodies that must not grow: reading and inflating a request under one limit.

Rules: the limit holds before and after decompression, so a bomb costs no more than the limit; what may take
long is inflated in a thread of its own, one at a time. Must not know signals or answers.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Final

_GZIP: Final = 31
"""zlib's window bits for a gzip container."""
_HERE_BYTES: Final = 1 << 12
"""Gzip of up to so many bytes is inflated where it comes: to wake a thread takes longer."""

_STEP: Final = 1 << 13
"""Most bytes that are given to one member at once: it copies those that follow its end."""


class TooLargeError(ValueError):
    """A body beyond the limit."""


class BadGzipError(ValueError):
    """A body that is not whole, valid gzip."""


async def read(
    chunks: AsyncIterator[bytes], limit: int, grow: Callable[[int], None], turn: asyncio.Lock | None
) -> bytes:
    """All bytes of a body, which is gzip where there is a `turn`: that of inflating one.

    `grow` is called before more bytes are held; it may raise.

    Raises `TooLargeError`, `BadGzipError` or `NoRoomError`.
    """
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > limit:
            raise too_large(limit)
        grow(len(chunk))
        body += chunk
    if turn is None:
        return bytes(body)
    if len(body) <= _HERE_BYTES:
        plain = inflated(body, limit)
    else:
        async with turn:
            plain = await asyncio.to_thread(inflated, body, limit)
    grow(len(plain))
    return plain


def too_large(limit: int) -> TooLargeError:
    """The error for a body beyond `limit` bytes."""
    return TooLargeError(
        f"the request is larger than {limit} bytes after decompression; send smaller batches, "
        "or raise max_request_body_size"
    )


def inflated(packed: bytes | bytearray, limit: int) -> bytes:
    """All gzip members one after another; raises `TooLargeError` beyond the limit, or `BadGzipError`."""
    if not packed:
        raise BadGzipError("the gzip body is empty")
    found, at, member = bytearray(), 0, zlib.decompressobj(_GZIP)
    while at < len(packed):
        if member.eof:
            member = zlib.decompressobj(_GZIP)
        piece = packed[at : at + _STEP]
        try:
            found += member.decompress(piece, limit + 1 - len(found))
        except zlib.error as error:
            raise BadGzipError(f"the body is not valid gzip: {error}") from error
        if len(found) > limit:
            raise too_large(limit)
        at += len(piece) - len(member.unused_data)
    if not member.eof:
        raise BadGzipError("the gzip body is cut short")
    return bytes(found)
