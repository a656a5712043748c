"""The page for browsers: the files of `overwatch.web`, with headers that keep it to itself.

Rules: the files are read once, so that no path leads anywhere else; they hold nothing of a run, and need no
token. Nothing is loaded from other hosts, no script stands in the page, none is made of text. Must not know
what the files do.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from aiohttp import hdrs, web

FREE: Final = frozenset({"/", "/web/{name}"})
"""Routes for who has no token yet."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""What a browser lets the page do."""
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""By how a name ends; other files are not served."""


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    content_type: str
    etag: str


class Pages:
    """The files, and the routes that serve them."""

    def __init__(self, folder: Traversable | None = None) -> None:
        """Those of `overwatch.web`, unless others are given."""
        self._files = dict(_found(folder or files("overwatch") / "web"))

    def add_to(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_get("/", self._index)
        app.router.add_get("/web/{name:.+}", self._named)

    @property
    def names(self) -> tuple[str, ...]:
        """What is served below `/web/`."""
        return tuple(self._files)

    async def _index(self, request: web.Request) -> web.Response:
        return self._answer(request, "index.html")

    async def _named(self, request: web.Request) -> web.Response:
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound
        headers = {**_HEADERS, hdrs.ETAG: f'"{found.etag}"'}
        if found.etag in {tag.value for tag in request.if_none_match or ()}:
            return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, headers={**headers, hdrs.CONTENT_TYPE: found.content_type})


def _found(folder: Traversable, below: str = "") -> Iterator[tuple[str, _File]]:
    for one in folder.iterdir():
        ending = one.name[one.name.rfind(".") :]
        if one.is_dir():
            yield from _found(one, f"{below}{one.name}/")
        elif ending in _TYPES:
            body = one.read_bytes()
            yield below + one.name, _File(body, _TYPES[ending], hashlib.sha256(body).hexdigest()[:32])
