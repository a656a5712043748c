"""Bodies of requests and replies: gzip in both directions, and limits that hold for what comes out of it.

Rules: a body is inflated as it comes, so that a small one cannot become a large one; nothing beyond the limit
is ever held. Must not know what a body means.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import hdrs, web

from overwatch.deflate import BadGzipError, Inflater, TooLargeError, fast_zlib

LEVEL: Final = 1
"""Of replies: the bytes are mostly digits, which the lowest level already packs to a third."""
SMALLEST: Final = 1024
"""Replies of fewer bytes go as they are."""
LARGE: Final = 1 << 20
"""Replies of so many bytes are packed by another thread: others need not wait for it."""
FREE: Final = 1 << 16
"""A body of so many bytes is received though the memory is full: an acknowledgement makes room."""
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


class FullError(Exception):
    """No room for another body now."""


_STATUS: Final[dict[type[Exception], int]] = {
    TooLargeError: 413, TooSlowError: 408, EncodingError: 415,
    BadGzipError: 400, web.RequestPayloadError: 400, ConnectionError: 400,
}  # fmt: skip
WRONG: Final = tuple(_STATUS)
"""What may be wrong with a body before it is read."""


def wrong(error: Exception) -> tuple[int, str | None]:
    """The status to answer such an error with, and the header that it is about."""
    status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
    return status, str(hdrs.CONTENT_ENCODING) if isinstance(error, EncodingError) else None


class Intake:
    """Receives the bodies of all requests of a server, those that are not whole yet within its memory."""

    def __init__(self, read_s: float, room: Callable[[int], bool]) -> None:
        """A body must arrive in `read_s`; `room` is asked if all bodies together may have so many bytes."""
        self._read_s = read_s
        self._room = room
        self._held = 0

    @asynccontextmanager
    async def body(self, request: web.Request, limit: int) -> AsyncIterator[bytes]:
        """The body of a request, which counts until the context ends.

        Raises as `read` does, and `TooSlowError` or `FullError`.
        """
        if not request.body_exists:
            yield b""
            return
        if (request.content_length or 0) > limit:
            raise TooLargeError(limit)
        size = 0

        def grow(by: int) -> None:
            """Count bytes of this body; raise `FullError` where there is no room for them."""
            nonlocal size
            size += by
            self._held += by
            if size > FREE and not self._room(self._held):
                raise FullError("the memory for requests is full; send this again in a while")

        try:
            encoding = request.headers.get(hdrs.CONTENT_ENCODING, "")
            async with asyncio.timeout(self._read_s):
                found = await read(request.content.iter_any(), encoding, limit, grow)
            yield found
        except TimeoutError as error:
            raise TooSlowError(self._read_s) from error
        finally:
            self._held -= size


async def read(
    chunks: AsyncIterator[bytes], encoding: str, limit: int, grow: Callable[[int], None] = lambda _: None
) -> bytes:
    """A whole body, inflated; raises `TooLargeError`, `BadGzipError` or `EncodingError`.

    `encoding` is the header `Content-Encoding`, `limit` the most bytes of what comes out. `grow` is called
    with the bytes that come.
    """
    packed = encoding.strip().lower()
    if packed not in ("", "identity", "gzip"):
        raise EncodingError(f"content encoding {packed[:40]!r} is not known; send gzip or none")
    found = bytearray()
    inflater = Inflater(limit) if packed == "gzip" else None
    async for chunk in chunks:
        piece = chunk if inflater is None else inflater.take(chunk)
        grow(len(piece))
        found += piece
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
