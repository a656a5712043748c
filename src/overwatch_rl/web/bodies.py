"""Bodies of requests: whole, inflated, and within limits that hold for what comes out.

A body is inflated as it comes, in pieces of bounded size by another thread, so that a small one neither
becomes a large one nor holds up the others. Must not know what a body means.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from litestar.datastructures import Headers
from litestar.types import HTTPScope, Receive

from overwatch.deflate import BadGzipError, Inflater, TooLargeError
from overwatch_rl.web.faults import RefusedError

FREE: Final = 1 << 16
"""A body of so many bytes is received though the memory is full: an acknowledgement makes room."""
PIECE: Final = 1 << 13
"""Most packed bytes that are inflated at once: a thousand times as many may come out."""
ENCODING: Final = "Content-Encoding"


class FullError(RefusedError):
    """No room for another body now."""

    status = 503


class Intake:
    """Receives the bodies of all requests of a server, those that are not whole yet within its memory."""

    def __init__(self, read_s: float, room: Callable[[int], bool]) -> None:
        """A body must arrive in `read_s`; `room` is asked if all bodies together may have so many bytes."""
        self._read_s = read_s
        self._room = room
        self._held = 0

    @asynccontextmanager
    async def body(self, scope: HTTPScope, receive: Receive, limit: int) -> AsyncIterator[bytes]:
        """The body of a request, which counts until the context ends; raise `RefusedError`."""
        headers = Headers.from_scope(scope)
        found = bytearray()
        counted = 0
        try:
            if int(headers.get("Content-Length") or 0) > limit:
                raise TooLargeError(limit)  # noqa: TRY301 as the inflater does
            async with asyncio.timeout(self._read_s):
                async for piece in _pieces(headers.get(ENCODING, ""), receive, limit):
                    found += piece
                    counted += len(piece)
                    self._held += len(piece)
                    if len(found) > limit:
                        raise TooLargeError(limit)  # noqa: TRY301 as the inflater does
                    if len(found) > FREE and not self._room(self._held):
                        raise FullError(
                            "the memory for requests is full; send this again in a while", retry_s=5
                        )
        except TimeoutError as error:
            late = f"the body did not arrive within {self._read_s:g} s"
            message = f"{late}; send less in a request, or raise --read-s"
            raise RefusedError(message, status=408) from error
        except TooLargeError as error:
            raise RefusedError(str(error), status=413) from error
        except BadGzipError as error:
            raise RefusedError(str(error), status=400) from error
        else:
            yield bytes(found)
        finally:
            self._held -= counted


async def _pieces(encoding: str, receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """What comes out of a body as it comes."""
    encoding = encoding.strip().lower()
    inflater = Inflater(limit) if encoding == "gzip" else None
    is_more = True
    while is_more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError("the connection ended before the request was whole", status=400)
        body, is_more = message.get("body", b""), message.get("more_body", False)
        if body and encoding not in ("", "identity", "gzip"):
            why = f"content encoding {encoding[:40]!r} is not known; send gzip or none"
            raise RefusedError(why, ENCODING, status=415)
        if inflater is None:
            yield body
            continue
        for at in range(0, len(body), PIECE):
            yield await asyncio.to_thread(inflater.take, body[at : at + PIECE])
    if inflater is not None and inflater.taken:
        inflater.end()
