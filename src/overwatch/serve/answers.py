"""What every route of the view API answers: JSON that no cache keeps, and errors that name the parameter.

Must not know the routes.
"""

from collections.abc import Mapping

import msgspec
from aiohttp import web


class BadRequest(Exception):  # noqa: N818 it is an answer, not a failure of ours
    """An answer that is an error."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.parameter = parameter


def only(query: Mapping[str, str], known: frozenset[str]) -> None:
    """Refuse parameters that are not known; raises `BadRequest`."""
    for name in query:
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise BadRequest(400, f"unknown parameter {name!r}; this address takes: {takes}", name)


def answer(status: int, body: bytes) -> web.Response:
    """An answer of JSON that no cache keeps."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def problem(status: int, message: str, parameter: str | None) -> web.Response:
    """An answer that is an error: what is wrong, and the parameter or header that it is about."""
    return answer(status, msgspec.json.encode({"error": message, "parameter": parameter}))
