"""Prometheus pages as bytes: gzip, rendering once per state of the data, and ahead of requests.

Owns `Exposition`, the seam between something that yields metric families and an HTTP answer. Rules: a page
that was made ahead is handed out as it lies, in the loop, so that a scrape only writes bytes; ahead is worked
only while there are scrapes, and never for more than a small share of a thread's time. Must not know which
metrics there are.
"""

import asyncio
import gzip
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from overwatch.background import Periodic
from overwatch.serve.metrics_text import Family, Text, accepts_gzip, choose, page

EVERY_S: Final = 1.0
"""Between two pages made ahead, at least."""
SHARE: Final = 0.05
"""Most of its time that a thread makes pages ahead."""
IDLE_S: Final = 90.0
"""A form that was not asked for in so long is no more made ahead."""

Form = tuple[Text, bool]
"""A text format, and whether it is compressed."""


class Exposition:
    """Renders families at most once per format and state; safe from any thread."""

    def __init__(
        self, families: Callable[[], Iterable[Family]], state: Callable[[], object] = object
    ) -> None:
        """Pages are kept for as long as `state` is the same object."""
        self._families = families
        self._state = state
        self._lock = threading.Lock()
        self._made: tuple[object, tuple[Family, ...]] | None = None
        self._bodies: dict[Form, bytes] = {}
        self._ready: dict[Form, bytes] = {}
        """Pages made ahead, handed out as they are; replaced as a whole."""
        self._taken: dict[Form, float] = {}
        """When each form was last asked for."""
        self._ahead = Periodic("pages", EVERY_S, self._try_ahead, SHARE)

    def start_ahead(self) -> None:
        """Begin to make pages before they are asked for."""
        self._ahead.start()

    def stop_ahead(self) -> None:
        """Make no more pages ahead; those that were are handed out no longer."""
        self._ahead.stop()
        self._ready = {}

    def make_ahead(self) -> None:
        """Make all forms that were asked for of late, of the current state."""
        now_s = time.monotonic()
        wanted = [form for form, taken in self._taken.copy().items() if now_s - taken < IDLE_S]
        self._ready = {form: self.body(form) for form in wanted}

    def _try_ahead(self) -> None:
        try:
            self.make_ahead()
        except Exception:  # noqa: BLE001 a border: who asks next makes the page, and gets the error
            self._ready = {}

    def body(self, form: Form) -> bytes:
        """The current page."""
        with self._lock:
            state = self._state()
            if self._made is None or self._made[0] is not state:
                self._made = state, tuple(self._families())
                self._bodies.clear()
            return self._rendered(self._made[1], form)

    def _rendered(self, families: tuple[Family, ...], form: Form) -> bytes:
        body = self._bodies.get(form)
        if body is None:
            text, is_packed = form
            plain = (text, False)
            body = gzip.compress(self._rendered(families, plain), 1) if is_packed else page(families, text)
            self._bodies[form] = body
        return body

    def app(self) -> web.Application:
        """A web application that serves the page under `/metrics`."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        text, content_type = choose(",".join(request.headers.getall("Accept", [])))
        is_packed = accepts_gzip(",".join(request.headers.getall("Accept-Encoding", [])))
        self._taken[text, is_packed] = time.monotonic()
        body = self._ready.get((text, is_packed))
        if body is None:
            body = await asyncio.to_thread(self.body, (text, is_packed))
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)
