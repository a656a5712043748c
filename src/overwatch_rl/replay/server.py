"""gRPC around the calls: who may call, messages to bytes and back, faults to statuses, health.

Rules: a call is judged before its message is decoded; bytes that are no message are INVALID_ARGUMENT; no call
ends the server; a fault of ours is logged and costs one call. Health needs no token. Must not know tables.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from grpc import aio

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.calls import UNARY, Calls, Failure
from overwatch_rl.replay.messages import parsed
from overwatch_rl.replay.protocol import RETRY_AFTER, SERVICE, STREAM, WAITED_FOR, request_of
from overwatch_rl.replay.service import KindError, OtherEncodingError, UndeclaredError, UnknownTableError
from overwatch_rl.replay.telemetry import Tower
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.spans import HEADER

_HEALTH: Final = "grpc.health.v1.Health"
_KNOWN: Final = (b"", b"\x0a" + bytes([len(SERVICE.full_name)]) + SERVICE.full_name.encode())
"""Requests of health that name no service, or this."""
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"

_log = logging.getLogger("overwatch_rl.replay")

Context: TypeAlias = "aio.ServicerContext"


class Server:
    """Answers calls by `Calls`; `handlers` go to a `grpc.aio.Server`."""

    def __init__(self, calls: Calls, authorisation: Authorisation, telemetry: Tower) -> None:
        self._calls = calls
        self._authorisation = authorisation
        self._telemetry = telemetry

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Of the service and of health."""
        methods = {name: grpc.unary_unary_rpc_method_handler(partial(self._unary, name)) for name in UNARY}
        methods[STREAM] = grpc.stream_stream_rpc_method_handler(self._stream)
        health = {"Check": grpc.unary_unary_rpc_method_handler(self._health)}
        return [
            grpc.method_handlers_generic_handler(SERVICE.full_name, methods),
            grpc.method_handlers_generic_handler(_HEALTH, health),
        ]

    def drain(self) -> None:
        """Health is not serving, and calls that wait end; others go on."""
        self._calls.moves.drain()

    async def _health(self, body: bytes, context: Context) -> bytes:
        if body not in _KNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"the service is {SERVICE.full_name}")
        return _NOT_SERVING if self._calls.moves.is_draining else _SERVING

    async def _unary(self, name: str, body: bytes, context: Context) -> Any:
        async def answer() -> bytes:
            """Decode, call and encode."""
            response = await UNARY[name](
                self._calls, parsed(request_of(name), body), context.time_remaining()
            )
            answered: bytes = response.SerializeToString()
            return answered

        return await self._guarded(name, context, answer)

    async def _stream(self, bodies: AsyncIterator[bytes], context: Context) -> None:
        async def requests() -> AsyncIterator[pb.SampleStreamRequest]:
            """Decode each as it comes."""
            async for body in bodies:
                yield parsed(pb.SampleStreamRequest, body)

        async def answer() -> None:
            """Send each as it is there."""
            async for response in self._calls.sample_stream(requests()):
                await context.write(response.SerializeToString())

        await self._guarded(STREAM, context, answer)

    def _admit(self, headers: Mapping[str, str]) -> None:
        denied = self._authorisation.denied(headers)
        if denied is not None:
            code = "UNAUTHENTICATED" if denied.status == 401 else "PERMISSION_DENIED"
            raise Failure(grpc.StatusCode[code], denied.message)

    async def _guarded(self, name: str, context: Context, answer: Callable[[], Awaitable[Any]]) -> Any:
        """The border: whatever goes wrong becomes a status."""
        began, headers = time.perf_counter(), _headers(context)
        code = grpc.StatusCode.OK
        try:
            self._admit(headers)
            with self._telemetry.span(headers.get(HEADER), f"replay.{name}"):
                return await answer()
        except (asyncio.CancelledError, CancelledError):
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001 every fault is an answer
            failure = _failure(error, name)
            code = failure.code
            await _abort(context, failure)
        finally:
            self._telemetry.answered(name, code.name, time.perf_counter() - began)


def _headers(context: Context) -> Mapping[str, str]:
    """Metadata as headers; no page of a browser can make these calls, so the host does not matter."""
    found = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    return {**found, "Host": "localhost", "Authorization": found.get("authorization", "")}


def _failure(error: Exception, name: str) -> Failure:
    match error:
        case Failure():
            return error
        case KindError() | UndeclaredError() | OtherEncodingError():
            return Failure(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        case UnknownTableError():
            return Failure(grpc.StatusCode.NOT_FOUND, str(error))
        case ValueError() | OverflowError():
            return Failure(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        case _:
            _log.error("%s failed", name, exc_info=error)
            return Failure(grpc.StatusCode.INTERNAL, "the server failed; its log has the cause")


async def _abort(context: Context, failure: Failure) -> NoReturn:
    trailing = []
    if failure.retry_s is not None:
        trailing.append((RETRY_AFTER, str(round(failure.retry_s * 1000))))
    if failure.waited_for is not None:
        trailing.append((WAITED_FOR, failure.waited_for))
    await context.abort(failure.code, failure.message[:4000], tuple(trailing))
    raise AssertionError
