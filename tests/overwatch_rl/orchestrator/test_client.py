"""The client: against a real server, and one that is away, busy or odd."""

import asyncio
import http.server
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.client import Calling, OrchestratorClient, OrchestratorError, called
from overwatch_rl.orchestrator.commands import Done, Pause
from tests.overwatch_rl.orchestrator.serving import TOKENS, Served, served
from tests.overwatch_rl.orchestrator.threaded import Operator, in_thread

KEY = "ab" * 32


def test_everything_that_a_learner_calls() -> None:
    """Create, look, beat, obey, register, evaluate; decoded into the types of the wire."""

    async def check(server: Served) -> None:
        async with OrchestratorClient(server.url, "r", TOKENS["operator"]) as operator:
            request = wire.RunRequest(config={"a": 1}, seed_base=3)
            assert (await operator.create(request)).state == "pending"
            other = wire.RunRequest(config={"a": 2})
            assert await operator.create(other) == await operator.run()
        async with OrchestratorClient(server.url + "/api/v1/", "r", TOKENS["learner"]) as learner:
            assert (await learner.run()).config == {"a": 1}
            assert (await learner.publish_key(KEY)).weights_public_key == KEY
            beat = wire.Heartbeat(run_id="r", status="running", step=1)
            assert (await learner.heartbeat(beat)).state == "running"
            assert await learner.next_command() is None
            issued, _ = await server.service.command("r", Pause(), "p", "operator")
            found = await learner.next_command(wait_s=5.0, lineage=0)
            assert found is not None
            assert found.id == issued.id
            assert (await learner.acknowledge("p", Done(outcome="done"))).status == "done"
            artifact = wire.ArtifactRequest(kind="checkpoint", version="000-00000001", uri="file:///a")
            kept = await learner.register_artifact(artifact)
            (listed,) = await learner.artifacts()
            assert (listed.version, listed.registered_at) == (kept.version, kept.registered_at)
            assert listed.mean_return is None
            evaluation = wire.EvaluationRequest(version="000-00000001", mean_return=2.5, episodes=3)
            posted = await learner.post_evaluation(evaluation)
            again = await learner.post_evaluation(msgspec.structs.replace(evaluation, mean_return=3.5))
            assert await learner.evaluations() == [posted, again]
            assert [one.mean_return for one in await learner.artifacts()] == [3.5]

    served(check, tokens=TOKENS)


def test_an_error_of_the_caller_is_raised_at_once() -> None:
    """With its status, the field, and the server's words."""

    async def check(server: Served) -> None:
        async with OrchestratorClient(server.url, "none") as client:
            with pytest.raises(OrchestratorError, match="404: there is no run 'none'") as error:
                await client.run()
            assert (error.value.status, error.value.path) == (404, None)

    served(check)


def test_work_without_a_loop() -> None:
    """For a command that posts once."""
    evaluation = wire.EvaluationRequest(version="000-00000001", mean_return=2.5, episodes=3)
    with in_thread() as server:
        Operator(server.url).create()
        posted = called(server.url, "r", None, lambda client: client.post_evaluation(evaluation))
        assert posted.mean_return == 2.5


@contextmanager
def answering(*replies: tuple[int, dict[str, str], bytes] | None) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these replies in turn, the last one for ever; `None` cuts the connection."""
    requested: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.headers.get("traceparent", ""))
            reply = replies[min(len(requested), len(replies)) - 1]
            if reply is None:
                self.close_connection = True
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requested
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30.0)


def fetched(url: str, work: Callable[[OrchestratorClient], Awaitable[Any]], **calling: Any) -> Any:
    """What a client gets."""

    async def run() -> Any:
        async with OrchestratorClient(url, "r", calling=Calling(**calling)) as client:
            return await work(client)

    return asyncio.run(run())


NOTHING = (200, {}, b'{"command":null}')


def test_what_passes_is_tried_again() -> None:
    """A cut connection, a server that is busy, one that answers no JSON; then it answers."""
    replies = (None, (503, {}, b"{}"), (429, {"Retry-After": "0"}, b""), (200, {}, b"<html>"), NOTHING)
    with answering(*replies) as (url, requested):
        assert (
            fetched(url, lambda client: client.next_command(), deadline_s=30.0, traceparent=lambda: "00-a")
            is None
        )
        assert requested == ["00-a"] * len(replies)


def test_a_deadline_ends_the_tries() -> None:
    """Also where the server asks for a longer wait; the error is the last one."""
    with answering((429, {"Retry-After": "60"}, b'{"error":"too soon"}')) as (url, requested):
        began = time.monotonic()
        with pytest.raises(OrchestratorError, match="429: too soon") as error:
            fetched(url, lambda client: client.next_command(), deadline_s=5.0)
        assert error.value.status == 429
        assert len(requested) == 1
        assert time.monotonic() - began < 50.0
    with pytest.raises(OrchestratorError, match="no answer") as error:
        fetched(url, lambda client: client.run(), deadline_s=0.5)
    assert error.value.status is None


def test_a_url_that_is_none_is_refused() -> None:
    """With one that is."""
    with pytest.raises(ValueError, match=r"orchestrator is 'nowhere'; write e.g. http://127.0.0.1:8200"):
        OrchestratorClient("nowhere", "r")
