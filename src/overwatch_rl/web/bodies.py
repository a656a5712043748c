"""Bodies of requests and replies: gzip in both directions, and limits that hold for what comes out of it.

Rules: a body is inflated as it comes, so that a small one cannot become a large one; nothing beyond the limit
is ever held. Must not know what a body means.
"""

from collections.abc import AsyncIterator
from typing import Final

from overwatch.deflate import Inflater, TooLargeError, fast_zlib

LEVEL: Final = 1
"""Of replies: the bytes are mostly digits, which the lowest level already packs to a third."""
SMALLEST: Final = 1024
"""Replies of fewer bytes go as they are."""
LARGE: Final = 1 << 20
"""Replies of so many bytes are packed by another thread: others need not wait for it."""
_GZIP: Final = 31
"""zlib's `wbits` of a gzip stream."""


class TooSlowError(Exception):
    """A body that did not arrive in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the body did not arrive within {seconds:g} s; send less in a request, or raise --read-s"
        )


class EncodingError(ValueError):
    """A content encoding that is not known."""


async def read(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """A whole body, inflated; raises `TooLargeError`, `BadGzipError` or `EncodingError`.

    `encoding` is the header `Content-Encoding`, `limit` the most bytes of what comes out.
    """
    packed = encoding.strip().lower()
    if packed not in ("", "identity", "gzip"):
        raise EncodingError(f"content encoding {packed[:40]!r} is not known; send gzip or none")
    found = bytearray()
    inflater = Inflater(limit) if packed == "gzip" else None
    async for chunk in chunks:
        found += chunk if inflater is None else inflater.take(chunk)
        if len(found) > limit:
            raise TooLargeError(limit)
    if inflater is not None and inflater.taken:
        inflater.end()
    return bytes(found)


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
