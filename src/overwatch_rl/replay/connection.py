"""One place that holds experience, as a client calls it: access, deadlines, and what is tried again.

Owns the one retry loop. Rules: a fault that may pass is met again after growing, jittered pauses until the
caller's deadline; what a server held back until its own deadline is asked again at once, and is no fault of
it; everything else is a `ReplayError`. Must not know what is called.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from overwatch_rl.replay.protocol import (
    MOST_BYTES,
    RETRY_AFTER,
    SERVICE,
    STREAM,
    UNARY_NAMES,
    WAITED_FOR,
    answer_of,
    options,
)
from overwatch_rl.web.reconnecting import RECONNECTING

State: TypeAlias = Literal["ok", "degraded"]
Metadata: TypeAlias = Sequence[tuple[str, str]]
T = TypeVar("T")

_PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Of a server that is away, goes, comes, or failed at this call."""
_FINAL: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_CHANNEL: Final = (
    *RECONNECTING,
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A server that is back is found within half a second; one that vanished is noticed within 30 s of a call."""


class ReplayError(Exception):
    """A server refused a request, and to ask again does not help; or the deadline passed."""

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        """`code` is the status of the last try."""
        super().__init__(message)
        self.code = code

    @property
    def is_final(self) -> bool:
        """Whether no later call can succeed: it is not allowed, or not what the server offers."""
        return self.code in _FINAL

    @property
    def is_full(self) -> bool:
        """Whether there was no room, on a server that answers."""
        return self.code is grpc.StatusCode.RESOURCE_EXHAUSTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How servers are called."""

    token: str | None = None
    ca: Path | None = None
    """PEM: the authority of the servers' certificates, instead of those of the system."""
    cert: Path | None = None
    """PEM: this client's certificate, where servers ask for one."""
    key: Path | None = None
    server_name: str | None = None
    """The name in the servers' certificate, where they are called by another."""
    namespace: str = "default"
    """What keeps a run's experience apart from others' in a place that many share, such as Redis."""
    most_message_bytes: int = MOST_BYTES
    """Of one message; servers refuse larger ones than their own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How calls are tried again."""

    attempt_s: float = 30.0
    """The longest that one try waits."""
    first_pause_s: float = 0.05
    longest_pause_s: float = 1.0


class Line:
    """One place, for one event loop."""

    faults: ClassVar[tuple[type[Exception], ...]] = (aio.AioRpcError, ReplayError)
    """What a try raises that `met` knows."""

    def __init__(self, where: str, patience: Patience, changed: Callable[[State, str], None]) -> None:
        """`where` has no password; `changed` is given a new state and why."""
        self.state: State = "ok"
        self.where = where
        self._patience = patience
        self._changed = changed

    async def call(
        self,
        name: str,
        request: Message,
        timeout_s: float,
        metadata: Metadata = (),
        *,
        is_early: bool = False,
    ) -> Any:
        """The answer to a method of `replay.v1`, asked for until the time is over. Raises `ReplayError`.

        `is_early`: where the table has no encoding yet, wait until an actor declares it.
        """
        return await self.retried(
            lambda seconds: self.attempt(name, request, seconds, metadata), timeout_s, is_early=is_early
        )

    async def attempt(self, name: str, request: Message, seconds: float, metadata: Metadata) -> Any:
        """One try."""
        raise NotImplementedError

    def met(self, error: Exception) -> tuple[ReplayError, float | None]:
        """What a fault means, and when to try again: `None` after a growing pause. Raises where never."""
        raise NotImplementedError

    async def retried(
        self,
        attempt: Callable[[float], Awaitable[T]],
        timeout_s: float = math.inf,
        *,
        is_early: bool = False,
    ) -> T:
        """What an attempt gives, made until the time is over; each is given its own seconds."""
        loop, pause_s = asyncio.get_running_loop(), self._patience.first_pause_s
        ends = loop.time() + timeout_s
        while True:
            began = loop.time()
            try:
                answer = await attempt(min(max(0.001, ends - began), self._patience.attempt_s))
            except self.faults as error:
                try:
                    failure, wait_s = self.met(error)
                except ReplayError as refused:
                    if not is_early or refused.code is not grpc.StatusCode.FAILED_PRECONDITION:
                        raise
                    failure, wait_s = refused, None
                if loop.time() - began > self._patience.longest_pause_s:
                    pause_s = self._patience.first_pause_s
                if wait_s is None:
                    # Jittered, so that clients do not come back together.
                    wait_s = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 nothing is kept secret
                    pause_s = min(2 * pause_s, self._patience.longest_pause_s)
                if loop.time() + wait_s >= ends:
                    raise failure from error
                await asyncio.sleep(wait_s)
            else:
                self.well()
                return answer

    def well(self) -> None:
        """It answered."""
        self.turn("ok", f"{self.where} answers")

    def turn(self, state: State, why: str) -> None:
        """How it is."""
        if state != self.state:
            self.state = state
            self._changed(state, why)

    async def close(self) -> None:
        """End it. A second call does nothing."""
        raise NotImplementedError


class Connection(Line):
    """One replay server."""

    def __init__(
        self,
        server: str,
        access: Access,
        patience: Patience,
        changed: Callable[[State, str], None] = lambda _state, _why: None,
    ) -> None:
        """`server` is `host:port` or `grpcs://host:port`."""
        scheme, _, rest = server.rpartition("://")
        if scheme not in ("", "grpc", "grpcs") or not rest.rpartition(":")[2].isdigit():
            raise ValueError(f"server {server!r} is not host:port; write e.g. 127.0.0.1:8100 or grpcs://…")
        super().__init__(rest, patience, changed)
        self._metadata = [] if access.token is None else [("authorization", f"Bearer {access.token}")]
        self._credentials = _credentials(access) if scheme == "grpcs" else None
        self._options = [*options(access.most_message_bytes), *_CHANNEL]
        if access.server_name is not None:
            self._options.append(("grpc.ssl_target_name_override", access.server_name))
        self._channel: aio.Channel | None = None
        self._methods: dict[str, Any] = {}

    def _method(self, name: str) -> Any:
        """A call of the service, made where the event loop runs."""
        if self._channel is None:
            if self._credentials is None:
                self._channel = aio.insecure_channel(self.where, options=self._options)
            else:
                self._channel = aio.secure_channel(self.where, self._credentials, options=self._options)
            path = f"/{SERVICE.full_name}/"
            self._methods = {
                one: self._channel.unary_unary(path + one, _body, answer_of(one).FromString)
                for one in UNARY_NAMES
            }
            self._methods[STREAM] = self._channel.stream_stream(
                path + STREAM, _body, answer_of(STREAM).FromString
            )
        return self._methods[name]

    async def attempt(self, name: str, request: Message, seconds: float, metadata: Metadata) -> Any:
        """One try."""
        return await self._method(name)(request, timeout=seconds, metadata=[*self._metadata, *metadata])

    def stream(self, metadata: Metadata = ()) -> Any:
        """A call whose requests and answers are streams; answers are not read yet."""
        return self._method(STREAM)(metadata=[*self._metadata, *metadata])

    def met(self, error: Exception) -> tuple[ReplayError, float | None]:
        """What a status means."""
        if not isinstance(error, aio.AioRpcError):
            raise error
        failure = ReplayError(f"{self.where}: {error.code().name}: {error.details()}", error.code())
        trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
        if WAITED_FOR in trailing:
            self.well()
            return failure, 0.0
        if RETRY_AFTER in trailing and trailing[RETRY_AFTER].isdigit():
            self.well()
            return failure, int(trailing[RETRY_AFTER]) / 1000 * random.uniform(1.0, 1.5)  # noqa: S311 no secret
        if error.code() not in _PASSING:
            raise failure from error
        self.turn("degraded", str(failure))
        return failure, None

    async def close(self) -> None:
        """End it. A second call does nothing."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _body(request: Message) -> bytes:
    return request.SerializeToString()


def _credentials(access: Access) -> grpc.ChannelCredentials:
    if (access.cert is None) != (access.key is None):
        raise ValueError("a client's certificate and its key belong together: give both or none")
    return grpc.ssl_channel_credentials(
        *(None if path is None else path.read_bytes() for path in (access.ca, access.key, access.cert))
    )
