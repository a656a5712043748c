"""Prometheus pages over HTTP: the formats of `prometheus_client`, rendered once per state of the data.

Owns `Exposition`, the seam between something that yields metric families and an HTTP answer. A page is
rendered in a thread beside the loop. Must not know which metrics there are.
"""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web
from prometheus_client.exposition import choose_encoder, gzip_accepted

from overwatch.serve.metrics_text import Families, Family

MOST_FORMS: Final = 8
"""Renderings of one state that are remembered: a client may ask for any version."""


def page(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """Return all families in the format that an `Accept` header asks for, and its content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:
        # A version that is no number.
        encode, content_type = choose_encoder("")
    return encode(Families(families)), content_type


class Exposition:
    """Renders families at most once per format and state; safe from any thread."""

    def __init__(
        self, families: Callable[[], Iterable[Family]], state: Callable[[], object] = object
    ) -> None:
        """Pages are kept for as long as `state` is the same object."""
        self._families = families
        self._state = state
        self._lock = threading.Lock()
        self._collected: tuple[object, tuple[Family, ...]] | None = None
        self._pages: dict[tuple[str, bool], tuple[bytes, str]] = {}

    def page(self, accept: str = "", *, is_packed: bool = False) -> tuple[bytes, str]:
        """Return the current page and its content type."""
        with self._lock:
            state = self._state()
            if self._collected is None or self._collected[0] is not state:
                self._collected = state, tuple(self._families())
                self._pages.clear()
            known = self._pages.get((accept, is_packed))
            if known is None:
                body, content_type = page(self._collected[1], accept)
                known = gzip.compress(body, 1) if is_packed else body, content_type
                if len(self._pages) < MOST_FORMS:
                    self._pages[accept, is_packed] = known
            return known

    def app(self) -> web.Application:
        """Return a web application that serves the page under `/metrics`."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall("Accept", []))
        is_packed = gzip_accepted(",".join(request.headers.getall("Accept-Encoding", [])))
        body, content_type = await asyncio.to_thread(self.page, accept, is_packed=is_packed)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)
