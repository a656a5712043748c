"""The guard of the gRPC door: the token of each call.

Rules: a call is judged by its metadata, before its message is read or inflated. Must not know signals.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from overwatch.collector.auth import Denial, Role
from overwatch.collector.guard import Guard, said

LISTENER: Final = "otlp_grpc"

_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]


class GrpcGuard(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    """Stands before all methods of a server, those that do not exist among them."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """The handler of a call, or one that refuses it."""
        metadata = handler_call_details.invocation_metadata
        tokens = [value for key, value in metadata if key == "authorization" and isinstance(value, str)]
        denial = self._guard.tokens.judge(Role.INGEST, tokens)
        if denial is None:
            return await continuation(handler_call_details)
        self._guard.count(LISTENER, "authorization")
        return _refusing(denial)


def _refusing(denial: Denial) -> grpc.RpcMethodHandler:
    code = {
        Denial.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
        Denial.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    }[denial]

    async def refuse(_: object, context: Any) -> bytes:
        # Nothing is raised, as what `abort` raises stays with the call until garbage is collected.
        context.set_code(code)
        context.set_details(said(denial, Role.INGEST))
        return b""

    # A handler of a stream is called before any message is read; that of a single message, after it.
    return grpc.stream_unary_rpc_method_handler(refuse)
