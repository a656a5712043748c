"""HTTP around the API: who may call, bodies within their limit, whatever goes wrong as an answer.

Rules: a request is judged before its body is read; no request ends the server, and none is answered with 500
for what it holds. Must not know runs.
"""

import logging
import math
import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from aiohttp import hdrs, web
from sqlalchemy.exc import SQLAlchemyError

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.api import LOCAL, ROUTES, Api, Call, Reply, Route
from overwatch_rl.orchestrator.commands import BoundsError
from overwatch_rl.orchestrator.runs import ConflictError
from overwatch_rl.orchestrator.service import TooSoonError, UnknownError
from overwatch_rl.orchestrator.telemetry import Requests
from overwatch_rl.web import bodies
from overwatch_rl.web.authorisation import Authorisation, Denied
from overwatch_rl.web.faults import InvalidError
from overwatch_rl.web.spans import HEADER

_HEADERS: Final[dict[str, str]] = {
    hdrs.CONTENT_TYPE: "application/json",
    hdrs.CACHE_CONTROL: "no-store",
}
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="overwatch-rl"'}
_PATTERNS: Final = [(route.method, re.compile(re.sub(r"{\w+}", "[^/]+", route.path))) for route in ROUTES]
MOST_RECEIVED: Final = 64 << 20
"""Bytes of all bodies that are being received or answered."""
_NOWHERE: Final = "none"
"""The route of a request that has none."""

_log = logging.getLogger("overwatch_rl.orchestrator")


class Server:
    """The web application."""

    def __init__(
        self, api: Api, authorisation: Authorisation, telemetry: Requests, read_s: float = 30.0
    ) -> None:
        """The body of a request must arrive in `read_s`."""
        self._api = api
        self._authorisation = authorisation
        self._telemetry = telemetry
        self._intake = bodies.Intake(read_s, MOST_RECEIVED.__ge__)

    def app(self) -> web.Application:
        """Routes; what has none is answered with the addresses there are."""
        app = web.Application()
        for route in ROUTES:
            app.router.add_route(route.method, route.path, partial(self._serve, route))
        app.router.add_route("*", "/{path:.*}", partial(self._serve, None))
        return app

    async def _serve(self, route: Route | None, request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        name = _NOWHERE if route is None else route.path
        with self._telemetry.span(request.headers.get(HEADER), f"orchestrator.{_span(route)}"):
            reply = await self._reply(route, request)
        method = request.method if route is not None else _NOWHERE
        self._telemetry.requested(method, name, reply.status, time.perf_counter() - began)
        headers = _HEADERS | dict(reply.headers)
        response = web.Response(body=msgspec.json.encode(reply.body), status=reply.status, headers=headers)
        if reply.status in (401, 403, 408, 413):
            response.force_close()
        return response

    async def _reply(self, route: Route | None, request: web.Request) -> Reply:
        role = LOCAL
        if route is None or route.roles:
            found = self._authorisation.role(request.headers)
            if isinstance(found, Denied):
                return _problem(
                    found.status, found.message, headers=_CHALLENGE if found.status == 401 else {}
                )
            role = found or LOCAL
        if route is None:
            return _nowhere(request)
        if role != LOCAL and role not in route.roles:
            allowed = " or ".join(route.roles)
            return _problem(
                403, f"{request.method} {route.path} is for the token of {allowed}, this is {role}'s"
            )
        return await self._answer(route, request, role)

    async def _answer(self, route: Route, request: web.Request, role: str) -> Reply:
        """The border: whatever goes wrong becomes an answer."""
        try:
            async with self._intake.body(request, route.most_bytes) as body:
                call = Call(
                    role=role, body=body, query=request.query, match=request.match_info,
                    headers=request.headers,
                )  # fmt: skip
                return await route.handler(self._api, call)
        except InvalidError as error:
            return _problem(422, str(error), error.fault.path)
        except BoundsError as error:
            return _problem(422, str(error), error.path)
        except ConflictError as error:
            return _problem(409, str(error), error.path)
        except UnknownError as error:
            return _problem(404, str(error))
        except TooSoonError as error:
            retry = {"Retry-After": str(math.ceil(error.retry_s))}
            return _problem(429, str(error), headers=retry)
        except bodies.FullError as error:
            return _problem(503, str(error), headers={hdrs.RETRY_AFTER: "5"})
        except bodies.WRONG as error:
            status, path = bodies.wrong(error)
            return _problem(status, str(error), path)
        except SQLAlchemyError as error:
            _log.exception("%s %s: the store failed", request.method, request.path)
            return _problem(
                503, f"the store cannot be used: {error!r}"[:500], headers={hdrs.RETRY_AFTER: "5"}
            )
        except Exception:  # noqa: BLE001 the border: a fault of ours is logged and costs one request
            _log.exception("%s %s failed", request.method, request.path)
            return _problem(500, "the server failed; its log has the cause")


def _span(route: Route | None) -> str:
    return _NOWHERE if route is None else route.handler.__name__


def _problem(
    status: int, error: str, path: str | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    return Reply(body=wire.Problem(error=error, path=path or None), status=status, headers=headers or {})


def _nowhere(request: web.Request) -> Reply:
    """To a request of an address that does not exist, or not with this method."""
    methods = sorted(method for method, pattern in _PATTERNS if pattern.fullmatch(request.path))
    if methods:
        allowed = ", ".join(methods)
        error = f"{request.method} is not served at {request.path[:80]}; use {allowed}"
        return _problem(405, error, headers={hdrs.ALLOW: allowed})
    return _problem(404, f"there is no {request.path[:80]!r}; GET /openapi.json describes what there is")
