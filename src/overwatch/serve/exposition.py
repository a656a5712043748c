"""Prometheus pages as bytes: gzip, rendering once per state of the data, and ahead of whoever asks.

Owns `Exposition`, the seam between something that yields metric families and an HTTP answer, and `Ahead`,
the thread that makes pages before they are asked for. Rules: a page that was made ahead is handed out as it
lies, in the loop, so that a scrape only writes bytes; ahead is worked only while somebody scrapes, and never
for more than a small share of a thread's time. Must not know which metrics there are.
"""

import asyncio
import gzip
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from overwatch.serve.metrics_text import Family, Text, accepts_gzip, choose, page

EVERY_S: Final = 1.0
"""Between two pages made ahead, at least."""
SHARE: Final = 0.05
"""Most of its time that a thread makes pages ahead."""
IDLE_S: Final = 90.0
"""A form that nobody took for so long is no more made ahead."""


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


_Form = tuple[Text, bool]
"""A text format, and whether it is compressed."""


class Exposition:
    """Renders a source at most once per format and state; safe from any thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._version: object = None
        self._families: tuple[Family, ...] | None = None
        self._bodies: dict[_Form, bytes] = {}
        self._ready: dict[_Form, bytes] = {}
        """Pages made ahead, handed out as they are; replaced as a whole."""
        self._taken: dict[_Form, float] = {}
        """When each form was last asked for."""

    def render(self, accept: str, *, compress: bool) -> Page:
        """The current page for an `Accept` header: OpenMetrics where asked for, else text 0.0.4."""
        form, content_type = choose(accept)
        return _page(self._made((form, compress)), content_type, compress=compress)

    def make_ahead(self, now_s: float) -> None:
        """Make all forms that were asked for of late, of the current state."""
        wanted = [form for form, taken in self._taken.copy().items() if now_s - taken < IDLE_S]
        self._ready = {form: self._made(form) for form in wanted}

    def forget(self) -> None:
        """Hand out nothing that was made ahead."""
        self._ready = {}

    def _made(self, form: _Form) -> bytes:
        with self._lock:
            version = self._source.version()
            if version is not self._version or self._families is None:
                self._families = tuple(self._source.families(version))
                self._bodies.clear()
                self._version = version
            return self._body(self._families, form)

    def _body(self, families: tuple[Family, ...], form: _Form) -> bytes:
        body = self._bodies.get(form)
        if body is None:
            text, compress = form
            body = gzip.compress(self._body(families, (text, False)), 1) if compress else page(families, text)
            self._bodies[form] = body
        return body

    def app(self) -> web.Application:
        """A web application that serves the page under `/metrics`."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        form, content_type = choose(",".join(request.headers.getall("Accept", [])))
        compress = accepts_gzip(",".join(request.headers.getall("Accept-Encoding", [])))
        self._taken[form, compress] = time.monotonic()
        body = self._ready.get((form, compress))
        if body is None:
            body = await asyncio.to_thread(self._made, (form, compress))
        page = _page(body, content_type, compress=compress)
        headers = {"Content-Type": page.content_type, "Vary": "Accept, Accept-Encoding"}
        if page.encoding:
            headers["Content-Encoding"] = page.encoding
        return web.Response(body=page.body, headers=headers)


def _page(body: bytes, content_type: str, *, compress: bool) -> Page:
    return Page(body=body, content_type=content_type, encoding="gzip" if compress else None)


class Ahead:
    """A thread that makes an exposition's pages before they are asked for."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Make no more pages; those made ahead are handed out no longer."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._exposition.forget()

    def _run(self) -> None:
        rest_s = EVERY_S
        while not self._over.wait(rest_s):
            began = time.monotonic()
            try:
                self._exposition.make_ahead(began)
            except Exception:  # noqa: BLE001 a border: who asks next makes the page, and is told what is wrong
                self._exposition.forget()
            rest_s = max(EVERY_S, (time.monotonic() - began) / SHARE)
