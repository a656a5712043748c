"""One trace in the client of a replay server and in the server, read back from a real receiver's bodies."""

import asyncio
import subprocess
import sys

import overwatch.sdk
from overwatch.sdk.tracing import loop_of
from overwatch_rl.replay.client import ReplayClient
from tests.overwatch.sdk.sink import http_sink
from tests.overwatch_rl.replay.serving import COMMAND, ENCODING, chunk
from tests.overwatch_rl.rollouts.test_spans import END_S, spans_of


def test_a_call_is_one_trace_in_client_and_server() -> None:
    """The server's span is below the client's, and that in the turn of the client's loop."""
    with http_sink() as sink:
        command = [*COMMAND, "--listen", "127.0.0.1:0",
                   "--run-id", "flight", "--endpoint", sink.endpoint]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().partition("grpc://")[2].partition(",")[0]
            run = overwatch.sdk.start(
                run_id="flight", endpoint=sink.endpoint, role="learner", sample=False, quiet=True
            )
            run.update(update=3, kl_divergence=0.01)

            async def act() -> None:
                client = ReplayClient([address], run=run)
                await client.declare("experience", ENCODING)
                await client.append("experience", [chunk()])
                await client.close()

            asyncio.run(act())
            run.close()
            process.terminate()
            assert process.wait(END_S) == 0
        finally:
            process.kill()
            process.communicate()
        found = spans_of(sink)
        (mine,), (theirs,) = found["learner"]["replay.append"], found["replay"]["replay.Append"]
        turn = loop_of("flight", 3)
        assert mine.trace_id == theirs.trace_id == turn.trace_id.to_bytes(16, "big")
        assert mine.parent_span_id == turn.span_id.to_bytes(8, "big")
        assert theirs.parent_span_id == mine.span_id
        assert "replay.Declare" not in found["replay"], sys.stderr
