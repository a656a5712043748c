"""How an actor's append ends, with a real replay server."""

from pathlib import Path

from overwatch_rl.actor.service import TABLE, Appending
from overwatch_rl.replay.blocking import BlockingReplayClient
from tests.overwatch_rl.replay.serving import ENCODING, chunk, served


def test_an_append_that_finds_no_room_did_not_fail(tmp_path: Path) -> None:
    """It waited; one that nobody answers is an error. Neither ends the actor."""
    with served(tmp_path, tables=[f"{TABLE}:items=1"]) as server:
        client = BlockingReplayClient([server.address])
        made = Appending(client)
        try:
            assert made.declare(ENCODING)
            found = [made.append([chunk(first=4 * number)]) for number in range(2)]
            server.kill()
            found.append(made.append([chunk(first=8)]))
        finally:
            client.close()

    assert found == ["ok", "waited", "error"]
