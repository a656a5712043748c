"""A real orchestrator in a thread, for learners that block; and its operator."""

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.overwatch_rl.orchestrator.serving import Served, serving

PATIENCE_S = 60.0


@contextlib.contextmanager
def in_thread(**settings: Any) -> Iterator[Served]:
    """Serve from a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = serving(**settings)
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(PATIENCE_S)
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def requested(url: str, method: str, path: str, body: object = None, token: str | None = None) -> Any:
    """The answer to a request, as curl gets it; a refused one has its `status` beside."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310 the test's own
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:  # noqa: S310
            return json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return {**json.load(error), "status": error.code}


@dataclass(frozen=True)
class Operator:
    """Asks about the run `r`, and commands it."""

    url: str
    token: str | None = None

    def create(self, **values: object) -> Any:
        """The run."""
        return requested(self.url, "POST", "/api/v1/runs", {"run_id": "r", **values}, self.token)

    def get(self, path: str = "") -> Any:
        """Of the run."""
        return requested(self.url, "GET", f"/api/v1/runs/r{path}", None, self.token)

    def post(self, path: str, body: object = None) -> Any:
        """To the run."""
        return requested(self.url, "POST", f"/api/v1/runs/r{path}", body, self.token)

    def done(self, command: Any) -> Any:
        """What became of a command once it was acknowledged: the learner is in another thread or process."""
        deadline = threading.Event()
        for _ in range(int(PATIENCE_S / 0.02)):
            found = next(one for one in self.get("/commands")["commands"] if one["id"] == command["id"])
            if found["status"] not in ("queued", "delivered"):
                return found
            deadline.wait(0.02)
        raise AssertionError(f"{command['id']} was not acknowledged: {self.get('/commands')}")
