"""OTLP over HTTP: one port for protobuf and JSON, answers in the request's encoding.

Rules: every refusal carries a `google.rpc.Status`; a body is read under one limit and one deadline;
success is answered after the journal has the bytes. Must not know gRPC or what a body means.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, assert_never

import msgspec
from aiohttp import web
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from overwatch.collector.connections import ConnectionsConfig
from overwatch.collector.guard import Refused, expected
from overwatch.collector.intake import RETRY_AFTER_S, Accepted, Body, Intake, Reason, RefusedError
from overwatch.collector.limits import NoRoomError, Room
from overwatch.collector.receivers import bodies
from overwatch.collector.setting_types import bounded
from overwatch.collector.signals import WIRES, Code, Wire, response, status
from overwatch.collector.tls import TlsConfig
from overwatch.deflate import BadGzipError, TooLargeError
from overwatch.journal import Signal

TRANSPORT: Final = "http"

_log = logging.getLogger("overwatch.collector")


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.protocols.http`."""

    endpoint: str
    """`host:port` to listen at."""
    max_request_body_size: int = 4 << 20
    """Largest body in bytes, after decompression."""
    read_timeout_s: float = 10.0
    """Longest time for a whole body to arrive, in seconds."""
    max_concurrent_requests: int = 4096
    """Most bodies that are read at once; beyond it senders must retry later."""
    connections: ConnectionsConfig = ConnectionsConfig(request_timeout_s=30.0)
    """How many connections there may be, and how long each may take."""

    tls: TlsConfig | None = None
    """TLS of this listener; that of `service.security` if left out."""

    def __post_init__(self) -> None:
        bounded(self, "max_request_body_size", least=1, most=64 << 20)
        bounded(self, "max_concurrent_requests", "read_timeout_s")


class Encoding(Enum):
    """How a request and its answer are written."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A refusal as HTTP has it."""

    status: int
    code: Code
    message: str
    retry_after_s: int | None = None
    allow: str | None = None


class Refusal(Exception):  # noqa: N818 it is an answer, not a failure of ours
    """Carries an answer that refuses up to the handler."""

    def __init__(self, status: int, code: Code, message: str, **more: Any) -> None:
        """`more` are further fields of the answer."""
        super().__init__(message)
        self.answer = Answer(status=status, code=code, message=message, **more)


class OtlpHttp:
    """The handler of all OTLP/HTTP requests."""

    def __init__(
        self,
        config: HttpConfig,
        intake: Intake,
        signals: frozenset[Signal],
        room: Room,
    ) -> None:
        self._config = config
        self._room = room
        self._intake = intake
        self._inflating = asyncio.Lock()
        self._reading = 0
        """Bodies that are being read or taken in."""
        self._wires = {WIRES[signal].path: WIRES[signal] for signal in signals}
        for signal in signals:
            intake.know(signal, TRANSPORT)

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=self._config.max_request_body_size)
        app.router.add_route("*", "/{path:.*}", self._answer, expect_handler=expected)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        encoding = _encoding(request)
        try:
            wire = self._route(request)
            encoding = _required(request)
            accepted = await self._accept(request, wire, encoding)
        except Refusal as refusal:
            return _refuse(refusal.answer, encoding or Encoding.JSON)
        except Exception:  # noqa: BLE001 the border of a request: a fault of ours is answered and counted
            _log.exception("a request to %s failed", request.path)
            stated = str(
                self._intake.refuse(Reason.FAULT, "the collector failed; its log has the cause", TRANSPORT)
            )
            return _refuse(Answer(status=500, code=Code.INTERNAL, message=stated), encoding or Encoding.JSON)
        return _succeed(wire, accepted, encoding)

    def _route(self, request: web.Request) -> Wire:
        wire = self._wires.get(request.path)
        if wire is None:
            known = ", ".join(sorted(self._wires))
            raise Refusal(
                status=404, code=Code.NOT_FOUND, message=f"no such path {request.path!r}; there is {known}"
            )
        if request.method != "POST":
            raise Refusal(
                status=405,
                code=Code.UNIMPLEMENTED,
                message=f"{request.method} is not supported here; use POST",
                allow="POST",
            )
        return wire

    async def _accept(self, request: web.Request, wire: Wire, encoding: Encoding) -> Accepted:
        if self._reading >= self._config.max_concurrent_requests:
            stated = f"{self._reading} requests are being read already"
            raise _refusal(self._intake.refuse(Reason.BUSY, stated, TRANSPORT))
        self._reading += 1
        peer = request.remote or ""
        try:
            self._intake.admit(TRANSPORT)
            with self._room.hold(peer) as grow:
                data = await self._body(request, grow)
                json = encoding is Encoding.JSON
                body = Body(signal=wire.signal, data=data, transport=TRANSPORT, json=json, peer=peer)
                return await self._intake.take(body)
        except RefusedError as error:
            raise _refusal(error) from error
        finally:
            self._reading -= 1

    async def _body(self, request: web.Request, grow: Callable[[int], None]) -> bytes:
        limit = self._config.max_request_body_size
        packed = request.headers.get("Content-Encoding", "").strip().lower()
        if packed not in {"", "identity", "gzip"}:
            raise Refusal(
                status=415,
                code=Code.INVALID_ARGUMENT,
                message=f"content encoding {packed!r} is not supported; send gzip or none",
            )
        try:
            if (request.content_length or 0) > limit:
                raise TooLargeError(limit)  # noqa: TRY301 refused as one that turns out to be
            async with asyncio.timeout(self._config.read_timeout_s):
                turn = self._inflating if packed == "gzip" else None
                return await bodies.read(request.content.iter_any(), limit, grow, turn)
        except TooLargeError as error:
            why = f"{error}, or raise max_request_body_size"
            raise self._intake.refuse(Reason.TOO_LARGE, why, TRANSPORT) from error
        except (BadGzipError, web.RequestPayloadError) as error:
            raise self._intake.refuse(Reason.MALFORMED, str(error), TRANSPORT) from error
        except NoRoomError as error:
            raise self._intake.refuse(Reason.BUSY, str(error), TRANSPORT) from error
        except TimeoutError as error:
            message = f"the body did not arrive within {self._config.read_timeout_s:g} s"
            raise Refusal(status=408, code=Code.DEADLINE_EXCEEDED, message=message) from error


def denied(request: web.Request, refused: Refused) -> web.Response:
    """A refusal of the door's guard, in the request's encoding."""
    codes = {401: Code.UNAUTHENTICATED, 429: Code.RESOURCE_EXHAUSTED}
    code = codes.get(refused.status, Code.PERMISSION_DENIED)
    answer = Answer(status=refused.status, code=code, message=refused.message)
    return _refuse(answer, _encoding(request) or Encoding.JSON)


def _refusal(error: RefusedError) -> Refusal:
    stated = str(error)
    match error.reason:
        case Reason.MALFORMED:
            return Refusal(status=400, code=Code.INVALID_ARGUMENT, message=stated)
        case Reason.TOO_LARGE:
            return Refusal(status=413, code=Code.RESOURCE_EXHAUSTED, message=stated)
        case Reason.FAULT:
            return Refusal(status=500, code=Code.INTERNAL, message=stated)
        case Reason.FULL | Reason.STOPPING | Reason.BUSY | Reason.MEMORY:
            return Refusal(status=503, code=Code.UNAVAILABLE, message=stated, retry_after_s=RETRY_AFTER_S)
        case _:
            assert_never(error.reason)


def _encoding(request: web.Request) -> Encoding | None:
    for encoding in Encoding:
        if request.content_type == encoding.value:
            return encoding
    return None


def _required(request: web.Request) -> Encoding:
    """The encoding of a request that is to be read; raises `Refusal`."""
    encoding = _encoding(request)
    if encoding is not None:
        return encoding
    raise Refusal(
        status=415,
        code=Code.INVALID_ARGUMENT,
        message=f"content type {request.content_type!r} is not supported; "
        "send application/x-protobuf or application/json",
    )


def _succeed(wire: Wire, accepted: Accepted, encoding: Encoding) -> web.Response:
    return _write(200, response(wire.signal, accepted.rejected, accepted.message), encoding)


def _refuse(answer: Answer, encoding: Encoding) -> web.Response:
    headers = {}
    if answer.retry_after_s is not None:
        headers["Retry-After"] = str(answer.retry_after_s)
    if answer.allow is not None:
        headers["Allow"] = answer.allow
    return _write(answer.status, status(answer.code, answer.message, answer.retry_after_s), encoding, headers)


def _write(
    code: int, message: Message, encoding: Encoding, headers: Mapping[str, str] | None = None
) -> web.Response:
    if encoding is Encoding.PROTOBUF:
        body = message.SerializeToString()
    else:
        body = msgspec.json.encode(MessageToDict(message))
    return web.Response(status=code, body=body, content_type=encoding.value, headers=headers)
