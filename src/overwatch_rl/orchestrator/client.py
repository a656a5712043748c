"""The orchestrator as a learner, an actor or an evaluation calls it: one run, over HTTP, from an event loop.

Rules: a call that fails for a while (no connection, too busy, too soon) is tried again at growing intervals
with jitter until its deadline; an error of the caller is raised at once. Every call may be repeated without
harm. Must not know what the caller does with the answers.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self, TypeVar

import aiohttp
import msgspec

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.commands import Done, Issued
from overwatch_rl.web.retrying import retrying
from overwatch_rl.web.spans import HEADER

T = TypeVar("T")
PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that another try may change."""


class OrchestratorError(Exception):
    """The orchestrator refused a call, or was not reached in time."""

    def __init__(
        self, message: str, status: int | None = None, path: str | None = None, retry_s: float | None = None
    ) -> None:
        """`status` is that of the reply, `None` without one; `path` the field that it names."""
        super().__init__(message)
        self.status = status
        self.path = path
        self.retry_s = retry_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """How patiently the orchestrator is called."""

    timeout_s: float = 10.0
    """So long one try waits for its reply, beyond what it asks the server to wait."""
    deadline_s: float = 60.0
    """So long a call is tried again."""
    ca: Path | None = None
    """PEM: the authorities of an https server, beside those of the system."""
    traceparent: Callable[[], str] = field(default=lambda: "")
    """Gives the span that a call belongs to; empty for none."""


class OrchestratorClient:
    """One run: `async with OrchestratorClient(url, run_id, token) as orchestrator:`."""

    def __init__(self, url: str, run_id: str, token: str | None = None, calling: Calling = Calling()) -> None:
        """`url` is where the server listens, e.g. `http://127.0.0.1:8200`."""
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"orchestrator is {url!r}; write e.g. http://127.0.0.1:8200")
        self.run_id = run_id
        self._base = url.removesuffix("/").removesuffix(wire.PREFIX) + wire.PREFIX
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._calling = calling
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trusted: ssl.SSLContext | bool = True
        if self._calling.ca is not None:
            trusted = ssl.create_default_context()
            trusted.load_verify_locations(self._calling.ca)
        connector = aiohttp.TCPConnector(ssl=trusted)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def create(self, request: wire.RunRequest) -> wire.RunRecord:
        """The run's record; it is made where it is not there yet, else it may have any maker and config."""
        try:
            return await self.run()
        except OrchestratorError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        body = msgspec.structs.replace(request, run_id=self.run_id)
        try:
            return await self._call("POST", "/runs", wire.RunRecord, body)
        except OrchestratorError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        return await self.run()

    async def run(self) -> wire.RunRecord:
        """All that is known of the run: config, seed base, key, state, lineage, what was tuned."""
        return await self._call("GET", "", wire.RunRecord)

    async def heartbeat(self, heartbeat: wire.Heartbeat, deadline_s: float | None = None) -> wire.Beaten:
        """Where the learner is."""
        return await self._call("POST", "/heartbeat", wire.Beaten, heartbeat, deadline_s=deadline_s)

    async def next_command(self, wait_s: float = 0.0, lineage: int | None = None) -> Issued | None:
        """The command in force; where there is none, the next one that comes within `wait_s`."""
        of_life = "" if lineage is None else f"&lineage={lineage}"
        path = f"/commands/next?wait_s={wait_s:g}{of_life}"
        return (await self._call("GET", path, wire.Next, wait_s=wait_s)).command

    async def acknowledge(
        self, command_id: str, done: Done, deadline_s: float | None = None
    ) -> wire.CommandRecord:
        """What became of a command."""
        path = f"/commands/{command_id}/ack"
        return await self._call("POST", path, wire.CommandRecord, done, deadline_s=deadline_s)

    async def publish_key(self, public_key: str) -> wire.RunRecord:
        """The public key that this run's weights are signed with, once: 32 bytes as hex."""
        return await self._call(
            "PUT", "/weights-key", wire.RunRecord, wire.KeyRequest(weights_public_key=public_key)
        )

    async def register_artifact(self, request: wire.ArtifactRequest) -> wire.ArtifactRecord:
        """Something is written; the same kind and version again changes nothing."""
        return await self._call("POST", "/artifacts", wire.ArtifactRecord, request)

    async def artifacts(self) -> list[wire.ListedArtifact]:
        """What was written, the oldest first, with what evaluations found of it."""
        return (await self._call("GET", "/artifacts", wire.Artifacts)).artifacts

    async def post_evaluation(self, request: wire.EvaluationRequest) -> wire.EvaluationRecord:
        """What was found of a version."""
        return await self._call("POST", "/evaluations", wire.EvaluationRecord, request)

    async def evaluations(self) -> list[wire.EvaluationRecord]:
        """Evaluations, the oldest first."""
        return (await self._call("GET", "/evaluations", wire.Evaluations)).evaluations

    async def _call(
        self, method: str, path: str, kind: type[T], body: msgspec.Struct | None = None, *,
        wait_s: float = 0.0, deadline_s: float | None = None,
    ) -> T:  # fmt: skip
        url = self._base + (path if path == "/runs" else f"/runs/{self.run_id}{path}")
        data = None if body is None else msgspec.json.encode(body)
        timeout_s = self._calling.timeout_s + wait_s
        patience_s = self._calling.deadline_s if deadline_s is None else deadline_s
        async for attempt in retrying(patience_s, _passes):
            with attempt:
                status, raw, requested_s = await self._once(method, url, data, timeout_s)
                if status >= 400:
                    raise _refusal(method, url, status, raw, requested_s)
                try:
                    return msgspec.json.decode(raw, type=kind)
                except msgspec.MsgspecError as failure:
                    raise OrchestratorError(f"{method} {url}: no answer: {failure!r}") from failure
        raise AssertionError

    async def _once(
        self, method: str, url: str, data: bytes | None, timeout_s: float
    ) -> tuple[int, bytes, float | None]:
        """Status, body, and when the server asks to be called again."""
        if self._session is None:
            raise RuntimeError("use the client in `async with`")
        headers = {"Content-Type": "application/json"}
        if traceparent := self._calling.traceparent():
            headers[HEADER] = traceparent
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, timeout=timeout
            ) as reply:
                after = reply.headers.get("Retry-After", "")
                return reply.status, await reply.read(), float(after) if after.isdigit() else None
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise OrchestratorError(f"{method} {url}: no answer: {failure!r}") from failure


def _refusal(method: str, url: str, status: int, raw: bytes, requested_s: float | None) -> OrchestratorError:
    try:
        problem = msgspec.json.decode(raw, type=wire.Problem)
    except msgspec.MsgspecError:
        problem = wire.Problem(error="")
    message = f"{method} {url}: {status}: {problem.error}".removesuffix(": ")
    return OrchestratorError(message, status, problem.path, requested_s)


def _passes(error: Exception) -> bool | float:
    """Whether another try may change an error, or after how many seconds where the server asks for that."""
    if not isinstance(error, OrchestratorError) or error.status not in PASSING | {None}:
        return False
    return True if error.retry_s is None else error.retry_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long is waited."""

    limit_s: float
    stop: Callable[[], str | None]
    """Asked between two tries: an outcome to end with, or `None` to go on."""
    report: Callable[[str], None]
    """Given a line when waiting begins and when it ends well."""


async def registered(client: OrchestratorClient, patience: Patience) -> wire.RunRecord | None:
    """The record of a run with the key of its weights; `None` where it was asked to stop.

    An actor may begin before its learner: what another try may change is waited for. Raises
    `OrchestratorError` when it is refused, or was not there in time.
    """
    waited = False

    def is_awaited(error: Exception) -> bool:
        nonlocal waited
        if not isinstance(error, OrchestratorError) or error.status not in PASSING | {
            None,
            HTTPStatus.NOT_FOUND,
        }:
            return False
        if not waited and patience.limit_s:
            waited, run = True, client.run_id
            patience.report(
                f"waits up to {patience.limit_s:g} s for the learner of run {run} to register: {error}"
            )
        return patience.stop() is None

    try:
        async for attempt in retrying(patience.limit_s, is_awaited):
            with attempt:
                record = await client.run()
                if record.weights_public_key is None:
                    message = f"run {client.run_id} has no public key yet; start its learner first"
                    raise OrchestratorError(message)  # noqa: TRY301 to be tried again
    except OrchestratorError as error:
        if is_awaited(error) or patience.stop() is None:
            raise
        return None
    if waited:
        patience.report(f"the learner of run {client.run_id} has registered")
    return record


def called(
    url: str,
    run_id: str,
    token: str | None,
    work: Callable[[OrchestratorClient], Awaitable[T]],
    calling: Calling = Calling(),
) -> T:
    """What one piece of work with a client returns, for callers without a loop, e.g. `evaluate`."""

    async def run() -> T:
        async with OrchestratorClient(url, run_id, token, calling) as client:
            return await work(client)

    return asyncio.run(run())
