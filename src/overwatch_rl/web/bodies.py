"""Bodies of requests and replies: gzip in both directions, and limits that hold for what comes out of it.

Rules: a body is inflated as it comes, so that a small one cannot become a large one; nothing beyond the limit
is ever held. Must not know what a body means.
"""

from collections.abc import AsyncIterator
from typing import Final

from overwatch.deflate import InflateError, fast_zlib

LEVEL: Final = 1
"""Of replies: the bytes are mostly digits, which the lowest level already packs to a third."""
SMALLEST: Final = 1024
"""Replies of fewer bytes go as they are."""
LARGE: Final = 1 << 20
"""Replies of so many bytes are packed by another thread: others need not wait for it."""
_GZIP: Final = 31
"""zlib's `wbits` of a gzip stream."""


class TooLargeError(Exception):
    """A body beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes; send less in a request")


class TooSlowError(Exception):
    """A body that did not arrive in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the body did not arrive within {seconds:g} s; send less in a request, or raise --read-s"
        )


class BadGzipError(ValueError):
    """A body that is no gzip stream, or not a whole one."""


class EncodingError(ValueError):
    """A content encoding that is not known."""


async def read(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """A whole body, inflated; raises `TooLargeError`, `BadGzipError` or `EncodingError`.

    `encoding` is the header `Content-Encoding`, `limit` the most bytes of what comes out.
    """
    packed = encoding.strip().lower()
    if packed not in ("", "identity", "gzip"):
        raise EncodingError(f"content encoding {packed[:40]!r} is not known; send gzip or none")
    found: list[bytes] = []
    size = 0
    inflated = _Inflater() if packed == "gzip" else None
    async for chunk in chunks:
        found.append(chunk if inflated is None else inflated.take(chunk, limit + 1 - size))
        size += len(found[-1])
        if size > limit:
            raise TooLargeError(limit)
    if inflated is not None:
        inflated.end()
    return b"".join(found)


class _Inflater:
    """One gzip stream of one or more members."""

    def __init__(self) -> None:
        self._member = fast_zlib.decompressobj(_GZIP)
        self._seen = False

    def take(self, chunk: bytes, room: int) -> bytes:
        """What comes out of a chunk, at most `room` bytes of it; raises `BadGzipError`."""
        found = bytearray()
        while chunk and len(found) < room:
            if self._member.eof:
                self._member = fast_zlib.decompressobj(_GZIP)
            try:
                found += self._member.decompress(chunk, room - len(found))
            except InflateError as error:
                raise BadGzipError(f"the body is no gzip stream: {error}") from error
            self._seen = True
            chunk = self._member.unused_data if self._member.eof else b""
        return bytes(found)

    def end(self) -> None:
        """Nothing more comes; raises `BadGzipError` where something is missing."""
        if self._seen and not self._member.eof:
            raise BadGzipError("the body is a gzip stream that ends too early")


def accepts_gzip(header: str) -> bool:
    """Whether a reader that sends this `Accept-Encoding` takes gzip.

    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0"), accepts_gzip("")
    (True, False, False)
    """
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def packed(body: bytes) -> bytes:
    """A reply's body as gzip."""
    stream = fast_zlib.compressobj(LEVEL, fast_zlib.DEFLATED, _GZIP)
    return stream.compress(body) + stream.flush()
