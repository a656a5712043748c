"""Prometheus pages as bytes: gzip, and rendering once per state of the data.

Owns `Exposition`, the seam between something that yields metric families and an HTTP answer. Must not
know which metrics there are.
"""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiohttp import web

from overwatch.serve.families import Family, Text, page
from overwatch.serve.negotiation import accepts_gzip, choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One rendered answer."""

    body: bytes
    content_type: str
    encoding: str | None = None
    """`gzip`, or `None` for an uncompressed body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What an exposition renders."""

    families: Callable[[object], Iterable[Family]]
    """Makes the families of the state that `version` returned."""
    version: Callable[[], object]
    """The current state; pages are kept for as long as this is the same object."""


class Exposition:
    """Renders a source at most once per format and state; safe from any thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._version: object = None
        self._families: tuple[Family, ...] | None = None
        self._bodies: dict[tuple[Text, bool], bytes] = {}

    def render(self, accept: str, *, compress: bool) -> Page:
        """The page for an `Accept` header: OpenMetrics where asked for, else text 0.0.4."""
        form, content_type = choose(accept)
        with self._lock:
            version = self._source.version()
            if version is not self._version or self._families is None:
                self._families = tuple(self._source.families(version))
                self._bodies.clear()
                self._version = version
            body = self._body(self._families, form, compress=compress)
        return Page(body=body, content_type=content_type, encoding="gzip" if compress else None)

    def _body(self, families: tuple[Family, ...], form: Text, *, compress: bool) -> bytes:
        body = self._bodies.get((form, compress))
        if body is None:
            if compress:
                body = gzip.compress(self._body(families, form, compress=False), 1)
            else:
                body = page(families, form)
            self._bodies[form, compress] = body
        return body

    def app(self) -> web.Application:
        """A web application that serves the page under `/metrics`."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        accept = ",".join(request.headers.getall("Accept", []))
        compress = accepts_gzip(",".join(request.headers.getall("Accept-Encoding", [])))
        page = await asyncio.to_thread(self.render, accept, compress=compress)
        headers = {"Content-Type": page.content_type, "Vary": "Accept, Accept-Encoding"}
        if page.encoding:
            headers["Content-Encoding"] = page.encoding
        return web.Response(body=page.body, headers=headers)
