"""A server of the rollouts API on a free port of this machine, in this process, and what clients send it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.server import rollouts_application
from overwatch_rl.rollouts.service import Service
from overwatch_rl.rollouts.store import Store, StoreLimits, sqlite_url
from overwatch_rl.rollouts.telemetry import Telemetry
from overwatch_rl.web.authorisation import Authorisation
from overwatch_rl.web.site import ConnectionLimits, listening, tls_context

TRAINER: dict[str, Any] = {
    "wandb_group": "group", "wandb_project": "project", "batch_size": 4, "max_token_len": 8,
    "checkpoint_dir": "/ckpt", "save_checkpoint_interval": 10, "starting_step": 0, "num_steps": 100,
}  # fmt: skip
ENV: dict[str, Any] = {"max_token_length": 8, "desired_name": "math", "weight": 1.0, "group_size": 2}


def group(env_id: int | None = 0, first: int = 1, **changed: object) -> dict[str, Any]:
    """A right group of two sequences."""
    rows = {"tokens": [[first, 2], [3]], "masks": [[-100, 2], [3]], "scores": [0.5, 1.0]}
    return {**rows, "env_id": env_id, **changed}


@dataclass(slots=True)
class Served:
    """A running server and a client of it."""

    client: aiohttp.ClientSession
    service: Service
    store: Store
    url: str

    async def get(self, path: str, status: int = 200, **request: Any) -> Any:
        """The answer to a GET, decoded."""
        async with self.client.get(path, **request) as reply:
            assert reply.status == status, await reply.text()
            return await reply.json()

    async def post(self, path: str, body: object = None, status: int = 200, **request: Any) -> Any:
        """The answer to a POST, decoded."""
        async with self.client.post(path, json=body, **request) as reply:
            assert reply.status == status, await reply.text()
            return await reply.json()

    async def start(self, envs: int = 1, **trainer: object) -> None:
        """Register a trainer that asked for its first batch, and some environments: 0, 1, ..."""
        await self.post("/register", {**TRAINER, **trainer})
        assert (await self.get("/batch"))["batch"] is None
        for number in range(envs):
            assert (await self.post("/register-env", ENV))["env_id"] == number


@contextlib.asynccontextmanager
async def serving(
    folder: Path | None = None, *, token: str | None = None, limits: Limits | None = None,
    held: int = 1 << 30, most_bytes: int = 1 << 20,
    connections: ConnectionLimits = ConnectionLimits(), tls: Path | None = None,  # noqa: B008 frozen
) -> AsyncIterator[Served]:  # fmt: skip
    """Serve from a folder, or from memory alone; `tls` has `ca.pem`, `server.pem` and `server.key`."""
    url = "sqlite://" if folder is None else sqlite_url(folder)
    store = Store(StoreLimits(url=url, held_bytes=held), limits)
    service = Service(store, Telemetry())
    await service.begin()
    app = rollouts_application(
        service, Authorisation("127.0.0.1", token), most_bytes, connections.read_s
    )  # fmt: skip
    cert, key = (None, None) if tls is None else (tls / "server.pem", tls / "server.key")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    trusted = True if tls is None else ssl.create_default_context(cafile=tls / "ca.pem")
    try:
        async with listening(app, "127.0.0.1", 0, connections, tls_context(cert, key)) as where:
            connector = aiohttp.TCPConnector(ssl=trusted)
            async with aiohttp.ClientSession(where, headers=headers, connector=connector) as client:
                yield Served(client, service, store, where)
    finally:
        await service.close()


def served(
    check: Callable[[Served], Awaitable[None]],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **settings: Any,
) -> None:
    """Run a check against a server of its own, in a loop of its own."""

    async def run() -> None:
        async with serving(**settings) as server:
            await check(server)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
