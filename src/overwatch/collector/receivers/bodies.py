"""Bodies that must not grow: reading a request under one limit, inflated.

Rules: the limit holds before and after decompression, so a bomb costs no more than the limit; what may take
long is inflated in a thread of its own, one at a time. Must not know signals or answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from overwatch.deflate import TooLargeError, inflated

_HERE_BYTES: Final = 1 << 12
"""Gzip of up to so many bytes is inflated where it comes: to wake a thread takes longer."""


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
            raise TooLargeError(limit)
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
