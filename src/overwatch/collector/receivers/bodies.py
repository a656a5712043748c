"""Bodies that must not grow: reading and inflating a request under one limit.

Rules: the limit holds before and after decompression, so a bomb costs no more than the limit. Must not
know signals or answers.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final

from overwatch.collector.limits import Hold

_GZIP: Final = 31
"""zlib's window bits for a gzip container."""
_STEP: Final = 1 << 18


class TooLargeError(ValueError):
    """A body beyond the limit."""


class BadGzipError(ValueError):
    """A body that is not whole, valid gzip."""


async def read(chunks: AsyncIterator[bytes], limit: int, hold: Hold, *, gzipped: bool) -> bytes:
    """All bytes of a body; raises `TooLargeError`, `BadGzipError` or `NoRoomError`."""
    inflater = Inflater(limit) if gzipped else None
    plain = bytearray()
    async for chunk in chunks:
        if inflater is not None:
            hold.grow(inflater.feed(chunk))
        elif len(plain) + len(chunk) > limit:
            raise too_large(limit)
        else:
            hold.grow(len(chunk))
            plain += chunk
    return bytes(plain) if inflater is None else inflater.finish()


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
        before = len(self._out)
        while data:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
                self._begun = False
            self._begun = True
            data = self._inflate(data)
        return len(self._out) - before

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
