"""Prometheus pages as bytes: content negotiation, gzip, and rendering once per state of the data.

Owns `Exposition`, the seam between something that yields metric families and an HTTP answer. Must not
know which metrics there are.
"""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


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

    families: Callable[[object], Iterable[Metric]]
    """Makes the families of the state that `version` returned."""
    version: Callable[[], object]
    """The current state; pages are kept for as long as this is the same object."""


class _Families(Collector):
    """Families that were made already, in the form that prometheus_client's encoders take."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


_MOST_PAGES: Final = 16


class Exposition:
    """Renders a source at most once per format and state; safe from any thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._version: object = None
        self._families = _Families(())
        self._pages: dict[tuple[str, bool], Page] = {}

    def render(self, accept: str, *, compress: bool) -> Page:
        """The page for an `Accept` header: OpenMetrics where asked for, else text 0.0.4."""
        encoder, content_type = choose_encoder(accept)
        with self._lock:
            version = self._source.version()
            if version is not self._version or not self._pages:
                self._families = _Families(self._source.families(version))
                self._pages.clear()
                self._version = version
            page = self._pages.get((content_type, compress))
            if page is None:
                body = encoder(self._families)
                page = Page(body=gzip.compress(body, 1), content_type=content_type, encoding="gzip")
                page = page if compress else Page(body=body, content_type=content_type)
                if len(self._pages) >= _MOST_PAGES:
                    self._pages.clear()
                self._pages[content_type, compress] = page
            return page

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


def accepts_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` header allows gzip; `gzip;q=0` does not.

    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0")
    (True, False)
    """
    for item in header.split(","):
        name, _, weight = item.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
