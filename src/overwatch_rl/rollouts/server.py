"""HTTP around the handlers: who may call, bodies within their limit, replies that are known to have arrived.

Rules: a request is judged before its body is read; a wrong one is answered in JSON that names the field; no
request ends the server. Batches of trainers that do not acknowledge go out one at a time, so that a request
never acknowledges a batch that is still on its way. Must not know the queue.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from overwatch_rl.rollouts import queue, wire
from overwatch_rl.rollouts.delivery import Delivery
from overwatch_rl.rollouts.handlers import ROUTES, Call, Handlers, Reply, Route
from overwatch_rl.rollouts.service import UnsafeError
from overwatch_rl.rollouts.state import State
from overwatch_rl.web import bodies
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.faults import InvalidError

BATCH: Final = "/batch"
PROBE: Final = "/healthz"
"""The one address that needs no token: what looks whether a server is well has none."""
_HEADERS: Final[dict[str, str]] = {
    hdrs.CONTENT_TYPE: "application/json",
    hdrs.CACHE_CONTROL: "no-store",
    hdrs.VARY: hdrs.ACCEPT_ENCODING,
}

_LEFT: Final = Reply(body=wire.Problem(error="the connection ended before the request was whole"), status=400)
"""To a client that has disconnected: an answer that is not read is no error."""

_log = logging.getLogger("overwatch_rl.rollouts")


class Server:
    """The web application."""

    def __init__(
        self, handlers: Handlers, authorisation: Authorisation, most_bytes: int, read_s: float = 60.0
    ) -> None:
        """`most_bytes` is the largest body, inflated; it must arrive in `read_s`."""
        self._handlers = handlers
        self._authorisation = authorisation
        self._most_bytes = most_bytes
        self._intake = bodies.Intake(read_s, handlers.service.room)
        self._one_batch = asyncio.Lock()
        self._watches: set[asyncio.Task[None]] = set()
        self._on_its_way: asyncio.Task[None] | None = None
        """Ends when what became of the last batch of a trainer that does not acknowledge is known."""

    def app(self) -> web.Application:
        """Routes; what has none is answered with the addresses there are."""
        app = web.Application()
        for route in ROUTES:
            app.router.add_route(route.method, route.path, partial(self._serve, route))
        app.router.add_route("*", "/{path:.*}", partial(self._serve, None))
        return app

    async def close(self) -> None:
        """Look no longer after replies that are on their way."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def _serve(self, route: Route | None, request: web.Request) -> web.StreamResponse:
        is_probe = route is not None and route.path == PROBE
        denied = None if is_probe else self._authorisation.denied(request.headers)
        if denied is not None:
            reply = Reply(body=wire.Problem(error=denied.message), status=denied.status)
            response = await self._response(request, reply)
            response.force_close()
            return response
        if route is None:
            return await self._response(request, _nowhere(request))
        if route.path != BATCH:
            return await self._response(request, await self._answer(route, request))
        return await self._batch(route, request)

    async def _answer(self, route: Route, request: web.Request) -> Reply:
        """The border: whatever goes wrong becomes an answer."""
        try:
            async with self._intake.body(request, self._most_bytes) as body:
                call = Call(body=body, query=request.query, match=request.match_info, headers=request.headers)
                return await route.handler(self._handlers, call)
        except wire.Rejected as error:
            return _rejected(error)
        except InvalidError as error:
            return Reply(body=wire.Problem(error=str(error), path=error.fault.path), status=422)
        except bodies.FullError:
            return _rejected(self._handlers.service.full())
        except UnsafeError as error:
            return Reply(body=wire.Problem(error=str(error)), status=503, headers={hdrs.RETRY_AFTER: "5"})
        except bodies.WRONG as error:
            status, path = bodies.wrong(error)
            return Reply(body=wire.Problem(error=str(error), path=path), status=status)
        except Exception:  # noqa: BLE001 the border: a fault of ours is logged and costs one request
            _log.exception("%s %s failed", request.method, request.path)
            return Reply(body=wire.Problem(error="the server failed; its log has the cause"), status=500)

    async def _batch(self, route: Route, request: web.Request) -> web.StreamResponse:
        if Call(headers=request.headers).is_explicit:
            return await self._delivered(request, await self._answer(route, request))
        async with self._one_batch:
            if self._on_its_way is not None:
                await asyncio.wait({self._on_its_way})
            if request.transport is None:
                return await self._response(request, _LEFT)
            return await self._delivered(request, await self._answer(route, request))

    async def _delivered(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        """Send a batch; one that does not arrive whole is queued again."""
        response = await self._response(request, reply)
        if reply.lease is None:
            return response
        delivery: Delivery | None = None
        try:
            if request.transport is None:
                raise ConnectionResetError("the trainer left before its batch was sent")
            delivery = Delivery(request.transport)
            await response.prepare(request)
            await response.write_eof()
            if request.protocol.writing_paused:
                raise ConnectionResetError("the trainer left while its batch was sent")
        except ConnectionError:
            if delivery is not None:
                delivery.close()
            await self._note(queue.broken, reply.lease)
            return response
        watch = asyncio.ensure_future(self._watch(delivery, reply.lease))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        if not Call(headers=request.headers).is_explicit:
            self._on_its_way = watch
        return response

    async def _watch(self, delivery: Delivery, lease: int) -> None:
        await self._note(queue.delivered if await delivery.arrived() else queue.broken, lease)

    async def _note(self, decide: Callable[[State, int, int], Any], lease: int) -> None:
        """Write what became of a reply; where that fails, time ends its lease."""
        with contextlib.suppress(UnsafeError):
            await self._handlers.service.do(lambda state, now: decide(state, lease, now))

    async def _response(self, request: web.Request, reply: Reply) -> web.Response:
        body = msgspec.json.encode(reply.body)
        headers = _HEADERS | dict(reply.headers)
        if reply.status == web.HTTPUnauthorized.status_code:
            headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="overwatch-rl"'
        accepted = request.headers.get(hdrs.ACCEPT_ENCODING, "")
        if len(body) >= bodies.SMALLEST and bodies.accepts_gzip(accepted):
            is_large = len(body) >= bodies.LARGE
            body = await asyncio.to_thread(bodies.packed, body) if is_large else bodies.packed(body)
            headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=body, status=reply.status, headers=headers)


def _rejected(error: wire.Rejected) -> Reply:
    headers: dict[str, str] = {}
    if isinstance(error.body, wire.Full):
        headers[hdrs.RETRY_AFTER] = str(max(1, math.ceil(error.body.retry_s)))
    return Reply(body=error.body, status=error.status, headers=headers)


def _nowhere(request: web.Request) -> Reply:
    """To a request of an address that does not exist, or not with this method."""
    methods = sorted({route.method for route in ROUTES if route.path == request.path})
    if methods:
        allowed = ", ".join(methods)
        error = f"{request.method} is not served at {request.path}; use {allowed}"
        return Reply(body=wire.Problem(error=error), status=405, headers={hdrs.ALLOW: allowed})
    error = f"there is no {request.path[:80]!r}; GET /openapi.json describes what there is"
    return Reply(body=wire.Problem(error=error), status=404)
