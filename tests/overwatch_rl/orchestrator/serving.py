"""An orchestrator on a free port of this machine, in this process, with clocks that tests turn."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from overwatch_rl.orchestrator.core import Clocks, Orchestrator
from overwatch_rl.orchestrator.server import orchestrator_application
from overwatch_rl.orchestrator.states import Pace
from overwatch_rl.orchestrator.store import Store
from overwatch_rl.orchestrator.telemetry import Telemetry
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.site import ConnectionLimits, listening

TOKENS = {role: f"token-of-the-{role}" for role in ("operator", "learner", "reader")}
RUN = "/api/v1/runs/r"


@dataclass(slots=True)
class Turned:
    """Clocks that go by hand."""

    monotonic: float = 1000.0
    wall: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def go(self, seconds: float) -> None:
        """Time passes."""
        self.monotonic += seconds
        self.wall += timedelta(seconds=seconds)

    def clocks(self) -> Clocks:
        """As the service takes them."""
        return Clocks(monotonic=lambda: self.monotonic, wall=lambda: self.wall)


@dataclass(slots=True)
class Served:
    """A running server and a client of it."""

    client: aiohttp.ClientSession
    service: Orchestrator
    time: Turned
    url: str

    async def query(self, method: str, path: str, body: object = None, status: int = 200, **how: Any) -> Any:
        """The answer, decoded."""
        async with self.client.request(method, path, json=body, **how) as reply:
            assert reply.status == status, await reply.text()
            return await reply.json()

    async def get(self, path: str = "", status: int = 200, **how: Any) -> Any:
        """Of the run `r`."""
        return await self.query("GET", RUN + path, None, status, **how)

    async def post(self, path: str, body: object = None, status: int = 200, **how: Any) -> Any:
        """To the run `r`."""
        return await self.query("POST", RUN + path, body, status, **how)

    async def create(self, run_id: str = "r", **values: object) -> Any:
        """A run."""
        return await self.query("POST", "/api/v1/runs", {"run_id": run_id, **values}, 201)

    async def beat(self, code: int = 200, *, after: float = 15.0, **values: object) -> Any:
        """A heartbeat, some time after the last."""
        self.time.go(after)
        body = {"run_id": "r", "status": "running", "step": 0, **values}
        return await self.post("/heartbeat", body, code)

    async def obey(self, outcome: str = "done", **values: object) -> Any:
        """Take the command in force and acknowledge it."""
        issued = (await self.get("/commands/next"))["command"]
        return await self.post(f"/commands/{issued['id']}/ack", {"outcome": outcome, **values})


@contextlib.asynccontextmanager
async def serving(
    store: Path | None = None, *, url: str | None = None, tokens: dict[str, str] | None = None,
    time: Turned | None = None, clocks: Clocks | None = None, telemetry: Telemetry | None = None,
    pace: Pace | None = None,
) -> AsyncIterator[Served]:  # fmt: skip
    """Serve from a file, or from memory alone; `clocks` are real ones where time is not turned."""
    turned = time or Turned()
    database = Store(url or ("sqlite://" if store is None else f"sqlite:///{store}"))
    service = Orchestrator(database, telemetry or Telemetry(), clocks or turned.clocks(), pace or Pace())
    app = orchestrator_application(service, Authorisation("127.0.0.1", tokens), read_s=5.0)
    try:
        async with (
            listening(app, "127.0.0.1", 0, ConnectionLimits()) as where,
            aiohttp.ClientSession(where) as client,
        ):
            yield Served(client, service, turned, where)
            await service.end()
    finally:
        service.close()
        database.close()


def served(check: Callable[[Served], Awaitable[None]], **settings: Any) -> None:
    """Run a check against a server of its own, in a loop of its own."""

    async def run() -> None:
        async with serving(**settings) as server:
            await check(server)

    asyncio.run(run())
