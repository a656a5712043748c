"""The gateway of a service: who may call, the whole body, whatever goes wrong as an answer; then Litestar.

A request is judged before its body is read, a body is whole, inflated and within its limits before a handler
sees it, and no request ends the server. Litestar routes, validates and describes the API. Owns the form of an
error: `{"error": what is wrong and the fix, "path": the field}`. Must not know what is served.
"""

import functools
import logging
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.di import Provide
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from overwatch import __version__
from overwatch.deflate import TooLargeError
from overwatch_rl.web.authorisation import Authorisation, Denied, Throttle
from overwatch_rl.web.bodies import FullError, Intake
from overwatch_rl.web.faults import InvalidError, RefusedError, decode, named

LOCAL: Final = "local"
"""The role of a caller where there are no tokens: this machine, which may do everything."""
PROBE: Final = "/healthz"
"""The address that needs no token: what looks whether a server is well has none."""
NOWHERE: Final = "none"
"""The route of a request that has none."""
_CLOSING: Final = (401, 403, 408, 413, 429, 503)
"""After these the connection ends where the body was not read."""
_HEADERS: Final = {"Cache-Control": "no-store"}

_log = logging.getLogger("overwatch_rl.web")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Who may call, and with what."""

    authorisation: Authorisation
    intake: Intake
    most_bytes: int
    """The largest body, inflated."""
    observe: Callable[[str, str, int, float], None] = lambda *_: None
    """Is given method, route, status and seconds of each answer."""
    span: Callable[[str | None, str], AbstractContextManager[object]] = lambda *_: nullcontext()
    """Measures a handler, given the caller's `traceparent` and the handler's name."""
    check: Callable[[bytes], object] = bytes
    """Raises where a body cannot be used whatever it is for."""
    full: Callable[[], RefusedError] | None = None
    """What a sender gets whose body finds no room, where that is more than an error."""


class _Request(Request[Any, Any, Any]):
    """A request whose body is decoded as what its handler takes, strictly."""

    async def json(self) -> Any:
        """The value of `data`; raise `InvalidError`."""
        field = self.route_handler.parsed_data_field
        body: bytes = self.scope["state"]["body"]
        most = self.route_handler.opt.get("most_bytes", len(body))
        if len(body) > most:
            raise RefusedError(str(TooLargeError(most)), status=413)
        if field is None or (not body and field.is_optional):
            return None
        return decode(body, _decoder(field.raw))


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class Gateway:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._throttle = Throttle()

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Judge, read, pass on, observe."""
        began, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            """Note the status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_read = False
        try:
            self._admit(scope)
            async with self._rules.intake.body(scope, receive, self._rules.most_bytes) as body:
                is_read = True
                scope["state"]["body"] = body
                if body:
                    self._rules.check(body)
                await self._app(scope, _whole(body, receive), sent)
        except RefusedError as error:
            if status:
                raise
            if isinstance(error, FullError) and self._rules.full is not None:
                error = self._rules.full()
            answer = answered(error)
            if not is_read and error.status in _CLOSING:
                answer.headers["Connection"] = "close"
            request: Request[Any, Any, Any] = Request(scope)
            await answer.to_asgi_response(app=None, request=request)(scope, receive, sent)
        route = scope.get("path_template") or NOWHERE
        method = scope["method"] if route != NOWHERE else NOWHERE
        self._rules.observe(method, re.sub(r":\w+}", "}", route), status, time.perf_counter() - began)

    def _admit(self, scope: HTTPScope) -> None:
        """Raise where a request is not served; keep the caller's role."""
        connection = scope["state"].get("connection")
        if connection is not None and connection.is_over:
            message = f"{connection.most} connections are open: raise --max-connections, or close some"
            raise RefusedError(message, status=503, retry_s=2)
        headers = Headers.from_scope(scope)
        role = None if scope["path"] == PROBE else self._rules.authorisation.role(headers)
        if isinstance(role, Denied):
            peer = (scope["client"] or ("", 0))[0]
            if role.status == HTTPStatus.UNAUTHORIZED and (
                wait_s := self._throttle.wrong(peer, headers.get("Authorization", ""))
            ):
                message = f"too many wrong tokens came from {peer}; wait {wait_s:.0f} s, or send a right one"
                raise RefusedError(message, status=429, retry_s=wait_s)
            raise RefusedError(role.message, status=role.status)
        scope["state"]["role"] = role or LOCAL


def _whole(body: bytes, receive: Receive) -> Receive:
    """The messages of a request whose body was read."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Any:
        """Return the body, then what else comes."""
        return messages.pop() if messages else await receive()

    return receive_next


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """This API as a document."""
    return request.app.openapi_schema.to_schema()


def application(title: str, handlers: Sequence[HTTPRouteHandler], rules: Rules, service: object) -> Gateway:
    """Return the ASGI application of handlers, which ask for the `service` and the `role` by name."""
    bearer = SecurityScheme(type="http", scheme="bearer")

    def measured(app: ASGIApp) -> ASGIApp:
        """Return an application whose handlers are measured."""

        async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
            """Open a span around the handler."""
            traceparent = Headers.from_scope(scope).get("traceparent")
            with rules.span(traceparent, str(scope["route_handler"]).rpartition(".")[2]):
                await app(scope, receive, send)

        return middleware

    def role(request: Request[Any, Any, Any]) -> str:
        """The caller's."""
        found: str = request.scope["state"]["role"]
        return found

    def provided() -> Any:
        """The service."""
        return service

    litestar = Litestar(
        [*handlers, openapi],
        dependencies={
            "role": Provide(role, sync_to_thread=False),
            "service": Provide(provided, sync_to_thread=False),
        },
        exception_handlers={Exception: _failed},
        guards=[_guard],
        logging_config=None,
        middleware=[measured],
        openapi_config=OpenAPIConfig(
            title,
            __version__,
            components=Components(security_schemes={"bearer": bearer}),
            security=[{"bearer": []}, {}],
            render_plugins=[JsonRenderPlugin()],
        ),
        request_class=_Request,
        request_max_body_size=None,
    )
    return Gateway(litestar, rules)


def _guard(connection: ASGIConnection[Any, Any, Any, Any], handler: Any) -> None:
    """Raise where an address is for other roles."""
    roles, role = handler.opt.get("roles"), connection.scope["state"].get("role")
    if roles and role != LOCAL and role not in roles:
        place = f"{getattr(connection, 'method', '')} {connection.url.path}"
        raise RefusedError(f"{place} is for the token of {' or '.join(roles)}, this is {role}'s", status=403)


def answered(error: RefusedError) -> Response[Any]:
    """Return a refusal as an answer."""
    body = error.body or {"error": str(error), "path": error.path}
    headers = dict(_HEADERS)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="overwatch-rl"'
    if error.retry_s is not None:
        headers["Retry-After"] = str(max(1, -int(-error.retry_s // 1)))
    return Response(body, status_code=error.status, headers=headers)


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """The border: whatever goes wrong becomes an answer."""
    path = request.scope["path"][:80]
    match error:
        case RefusedError():
            return answered(error)
        case ValidationException(__cause__=msgspec.ValidationError() as cause):
            return answered(InvalidError(named(str(cause), b"", {})))
        case MethodNotAllowedException():
            methods = _methods(request)
            refusal = answered(
                RefusedError(f"{request.method} is not served at {path}; use {methods}", status=405)
            )
            refusal.headers["Allow"] = methods
            return refusal
        case NotFoundException():
            message = f"there is no {path!r}; GET /openapi.json describes what there is"
            return answered(RefusedError(message, status=404))
        case HTTPException(status_code=status) if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return answered(RefusedError(error.detail, status=status))
        case _:
            _log.error("%s %s failed", request.method, path, exc_info=error)
            return answered(RefusedError("the server failed; its log has the cause", status=500))


def _methods(request: Request[Any, Any, Any]) -> str:
    """The methods that an address is served with."""
    found: set[str] = set()
    for route in request.app.routes:
        if re.fullmatch(re.sub(r"{[^}]+}", "[^/]+", route.path_format), request.scope["path"]):
            found |= set(getattr(route, "methods", ())) - {"OPTIONS"}
    return ", ".join(sorted(found))
