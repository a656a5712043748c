"""A connection to one replay server: access, deadlines, and what is tried again.

Rules: a status that may pass is tried again after growing, jittered pauses until the caller's deadline; what
a server held back until its own deadline is asked again at once, and is no fault of it; every other status is
a `ReplayError`. Must not know what is called.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

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


@dataclass(slots=True)
class Pause:
    """Grows twofold from pause to pause."""

    patience: Patience
    tries: int = 0

    def next(self) -> float:
        """Seconds, jittered so that clients do not come back together."""
        usual: float = min(self.patience.first_pause_s * 2**self.tries, self.patience.longest_pause_s)
        self.tries = min(self.tries + 1, 32)
        return usual * random.uniform(0.5, 1.0)  # noqa: S311 nothing is kept secret


class Connection:
    """One server, for one event loop."""

    def __init__(
        self,
        server: str,
        access: Access,
        patience: Patience,
        changed: Callable[[State, str], None] = lambda _state, _why: None,
    ) -> None:
        """`server` is `host:port` or `grpcs://host:port`; `changed` is given a new state and why."""
        scheme, _, rest = server.rpartition("://")
        if scheme not in ("", "grpc", "grpcs") or not rest.rpartition(":")[2].isdigit():
            raise ValueError(f"server {server!r} is not host:port; write e.g. 127.0.0.1:8100 or grpcs://…")
        self.state: State = "ok"
        self.patience = patience
        self._where = rest
        self._changed = changed
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
                self._channel = aio.insecure_channel(self._where, options=self._options)
            else:
                self._channel = aio.secure_channel(self._where, self._credentials, options=self._options)
            path = f"/{SERVICE.full_name}/"
            self._methods = {
                one: self._channel.unary_unary(path + one, _body, answer_of(one).FromString)
                for one in UNARY_NAMES
            }
            self._methods[STREAM] = self._channel.stream_stream(path + STREAM, _body)
        return self._methods[name]

    async def call(
        self, name: str, request: Message | bytes, timeout_s: float, metadata: Metadata = ()
    ) -> Any:
        """The answer, asked for until the time is over. Raises `ReplayError`."""
        loop, pause = asyncio.get_running_loop(), Pause(self.patience)
        ends = loop.time() + timeout_s
        while True:
            left = max(0.001, ends - loop.time())
            try:
                answer = await self._method(name)(
                    request, timeout=min(left, self.patience.attempt_s), metadata=[*self._metadata, *metadata]
                )
            except aio.AioRpcError as error:
                wait_s = self.wait_after(error, pause)
                if loop.time() + wait_s >= ends:
                    raise _error(self._where, name, error) from error
                await asyncio.sleep(wait_s)
            else:
                self.well()
                return answer

    def stream(self, metadata: Metadata = ()) -> Any:
        """A call whose requests and answers are streams; answers are not read yet."""
        return self._method(STREAM)(metadata=[*self._metadata, *metadata])

    def wait_after(self, error: aio.AioRpcError, pause: Pause) -> float:
        """How long to wait before a call that failed so is tried again. Raises `ReplayError` where never."""
        trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
        if WAITED_FOR in trailing:
            self.well()
            return 0.0
        if RETRY_AFTER in trailing and trailing[RETRY_AFTER].isdigit():
            self.well()
            return int(trailing[RETRY_AFTER]) / 1000 * random.uniform(1.0, 1.5)  # noqa: S311 no secret
        if error.code() not in _PASSING:
            raise _error(self._where, "a call", error) from error
        self._turn("degraded", f"{self._where}: {error.code().name}: {error.details()}")
        return pause.next()

    def well(self) -> None:
        """The server answered."""
        self._turn("ok", f"{self._where} answers")

    def _turn(self, state: State, why: str) -> None:
        if state != self.state:
            self.state = state
            self._changed(state, why)

    async def close(self) -> None:
        """End it. A second call does nothing."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _body(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _error(where: str, name: str, error: aio.AioRpcError) -> ReplayError:
    code = error.code()
    return ReplayError(f"{where}: {name}: {code.name}: {error.details()}", code)


def _credentials(access: Access) -> grpc.ChannelCredentials:
    if (access.cert is None) != (access.key is None):
        raise ValueError("a client's certificate and its key belong together: give both or none")
    return grpc.ssl_channel_credentials(
        *(None if path is None else path.read_bytes() for path in (access.ca, access.key, access.cert))
    )
