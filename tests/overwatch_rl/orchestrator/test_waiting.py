"""An actor that begins before its learner, with a real orchestrator."""

import asyncio

import pytest

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.client import (
    Calling,
    OrchestratorClient,
    OrchestratorError,
    Patience,
    registered,
)
from tests.overwatch_rl.orchestrator.serving import TOKENS, Served, served
from tests.ports import free_port

KEY = "ab" * 32
LONG_S = 60.0


class Around:
    """What a caller gives: an outcome to end with, and a place for lines."""

    def __init__(self, outcome: str | None = None) -> None:
        self.outcome = outcome
        self.lines: list[str] = []
        self.waits = asyncio.Event()

    def stop(self) -> str | None:
        """Asked between two tries."""
        self.waits.set()
        return self.outcome

    def patience(self, limit_s: float) -> Patience:
        """So long."""
        return Patience(limit_s=limit_s, stop=self.stop, report=self.lines.append)


def test_it_waits_for_the_run_and_then_for_its_key() -> None:
    """One line when it begins, one when it is there, however often it asks."""

    async def check(server: Served) -> None:
        around = Around()
        async with (
            OrchestratorClient(server.url, "r", TOKENS["reader"]) as actor,
            OrchestratorClient(server.url, "r", TOKENS["learner"]) as learner,
        ):
            waiting = asyncio.create_task(registered(actor, around.patience(LONG_S)))
            await asyncio.wait_for(around.waits.wait(), LONG_S)
            await learner.create(wire.RunRequest(config={"a": 1}))
            around.waits.clear()
            await asyncio.wait_for(around.waits.wait(), LONG_S)
            assert not waiting.done()
            await learner.publish_key(KEY)
            record = await asyncio.wait_for(waiting, LONG_S)
        assert record is not None
        assert (record.config, record.weights_public_key) == ({"a": 1}, KEY)
        first, last = around.lines
        assert first.startswith("waits up to 60 s for the learner of run r to register: ")
        assert "404" in first
        assert last == "the learner of run r has registered"

    served(check, tokens=TOKENS)


def test_who_is_there_already_is_not_waited_for() -> None:
    """Nothing is reported, and no limit matters."""

    async def check(server: Served) -> None:
        around = Around()
        async with OrchestratorClient(server.url, "r", TOKENS["learner"]) as learner:
            await learner.create(wire.RunRequest())
            await learner.publish_key(KEY)
            assert await registered(learner, around.patience(0.0))
        assert around.lines == []

    served(check, tokens=TOKENS)


@pytest.mark.parametrize(("is_made", "why"), [(False, "404"), (True, "start its learner first")])
def test_a_limit_that_is_over_is_an_error_that_names_what_is_missing(is_made: bool, why: str) -> None:  # noqa: FBT001
    """Without a limit at the first answer."""

    async def check(server: Served) -> None:
        async with OrchestratorClient(server.url, "r", TOKENS["learner"]) as learner:
            if is_made:
                await learner.create(wire.RunRequest())
            with pytest.raises(OrchestratorError, match=why):
                await registered(learner, Around().patience(0.0))

    served(check, tokens=TOKENS)


def test_a_refusal_is_not_waited_out() -> None:
    """A wrong token stays wrong."""

    async def check(server: Served) -> None:
        around = Around()
        async with OrchestratorClient(server.url, "r", "wrong") as actor:
            with pytest.raises(OrchestratorError, match="401"):
                await registered(actor, around.patience(LONG_S))
        assert around.lines == []

    served(check, tokens=TOKENS)


def test_a_stop_ends_the_waiting_also_where_nothing_listens() -> None:
    """An orchestrator that is away is waited for too."""

    async def check() -> None:
        around = Around("interrupted")
        url, calling = f"http://127.0.0.1:{free_port()}", Calling(deadline_s=0.0)
        async with OrchestratorClient(url, "r", None, calling) as actor:
            assert await registered(actor, around.patience(LONG_S)) is None
        (line,) = around.lines
        assert "no answer" in line

    asyncio.run(check())
