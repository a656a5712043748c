"""Bodies that must not grow: reading and inflating a request under one limit.

Rules: the limit holds before and after decompression, so a bomb costs no more than the limit; of what grows
beyond a few slices, one slice is inflated between two looks at the sockets, however many such bodies come.
Must not know signals or answers.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from overwatch.collector.limits import Hold

_GZIP: Final = 31
"""zlib's window bits for a gzip container."""
_STEP: Final = 1 << 15
"""Most bytes of a slice..."""
_FREE: Final = 2 * _STEP
"""...and of a body that waits for nobody: most are no larger."""


class TooLargeError(ValueError):
    """A body beyond the limit."""


class BadGzipError(ValueError):
    """A body that is not whole, valid gzip."""


async def read(chunks: AsyncIterator[bytes], limit: int, hold: Hold, slices: asyncio.Lock | None) -> bytes:
    """All bytes of a body, which is gzip where there are `slices`: who holds it may inflate one.

    Raises `TooLargeError`, `BadGzipError` or `NoRoomError`.
    """
    if slices is not None:
        return await _inflate(chunks, Inflater(limit), hold, slices)
    plain = bytearray()
    async for chunk in chunks:
        if len(plain) + len(chunk) > limit:
            raise too_large(limit)
        hold.grow(len(chunk))
        plain += chunk
    return bytes(plain)


async def _inflate(
    chunks: AsyncIterator[bytes], inflater: "Inflater", hold: Hold, slices: asyncio.Lock
) -> bytes:
    free = _FREE
    async for chunk in chunks:
        left = inflater.slices(chunk)
        while True:
            if free <= 0:
                async with slices:
                    await asyncio.sleep(0)
                    came = next(left, None)
            else:
                came = next(left, None)
            if came is None:
                break
            hold.grow(came)
            free -= came
    return inflater.finish()


def too_large(limit: int) -> TooLargeError:
    """The error for a body beyond `limit` bytes."""
    return TooLargeError(
        f"the request is larger than {limit} bytes after decompression; send smaller batches, "
        "or raise max_request_body_size"
    )


class Inflater:
    """Inflates gzip members one after another, up to a limit of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._out = bytearray()
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False

    def feed(self, data: bytes) -> int:
        """Take compressed bytes; returns how many came of them."""
        return sum(self.slices(data))

    def slices(self, data: bytes) -> Iterator[int]:
        """Take compressed bytes, slice by slice; yields how many came of each."""
        while data:
            before = len(self._out)
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
                self._begun = False
            self._begun = True
            data = self._inflate(data)
            yield len(self._out) - before

    def _inflate(self, data: bytes) -> bytes:
        """Inflate one step; returns what is still to be fed."""
        room = self._limit - len(self._out)
        try:
            self._out += self._member.decompress(data, min(_STEP, room + 1))
        except zlib.error as error:
            raise BadGzipError(f"the body is not valid gzip: {error}") from error
        if len(self._out) > self._limit:
            raise too_large(self._limit)
        return self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def finish(self) -> bytes:
        """The inflated body; raises `BadGzipError` when the last member is cut short."""
        while self._begun and not self._member.eof:
            before = len(self._out)
            self._inflate(b"")
            if len(self._out) == before:
                raise BadGzipError("the gzip body is cut short")
        if not self._begun:
            raise BadGzipError("the gzip body is empty")
        return bytes(self._out)
