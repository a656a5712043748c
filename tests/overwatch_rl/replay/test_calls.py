"""Calls of the replay service over real tables in this process: waiting, waking, credits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.base import TableConfig
from overwatch_rl.replay.calls import MOST_DRAWS, UNARY, Calls, Failure
from overwatch_rl.replay.chunk import Chunk
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.protocol import SERVICE, STREAM, UNARY_NAMES
from overwatch_rl.replay.service import Replay
from tests.overwatch_rl.replay.serving import ENCODING, chunk, message

SLOW_S = 60.0


def calls_of(*tables: TableConfig) -> Calls:
    """Over tables whose encoding is declared."""
    calls = Calls(Replay(tables or (TableConfig(name="t"),)))
    for table in calls.replay.tables:
        calls.replay.declare(table, ENCODING)
    return calls


@pytest.fixture
def calls() -> Calls:
    """Over one table of sequences."""
    return calls_of()


def appended(*chunks: Chunk, table: str = "") -> pb.AppendRequest:
    """A request as it came."""
    return pb.AppendRequest(table=table, encoding_hash=ENCODING.hash, chunks=map(message, chunks))


async def leased(calls: Calls, steps: int, learner: str = "l", left_s: float = SLOW_S) -> pb.LeaseOf:
    """As protobuf itself reads it."""
    return (await calls.lease(pb.LeaseRequest(learner=learner, steps=steps), left_s)).lease


def test_every_method_of_the_protocol_has_a_row() -> None:
    """And no row is of another."""
    assert set(UNARY) == set(UNARY_NAMES)
    assert {method.name for method in SERVICE.methods} == {*UNARY, STREAM}
    assert all(
        (method.client_streaming, method.server_streaming) == ((method.name == STREAM,) * 2)
        for method in SERVICE.methods
    )


def test_a_lease_waits_until_there_is_enough(calls: Calls) -> None:
    """It is woken by the append that completes it, not by the one before."""

    async def act() -> None:
        waiting = asyncio.ensure_future(leased(calls, 8))
        await calls.append(appended(chunk(first=0)), SLOW_S)
        await asyncio.sleep(0)
        assert not waiting.done()
        await calls.append(appended(chunk(first=4)), SLOW_S)
        assert [item.chunk.first_step for item in (await waiting).items] == [0, 4]

    asyncio.run(act())


def test_an_empty_name_is_the_only_table() -> None:
    """With two of them it is refused with their names."""
    calls = calls_of(TableConfig(name="a"), TableConfig(name="b"))

    async def act() -> None:
        with pytest.raises(ValueError, match="table is empty; this server has a, b"):
            await calls.append(appended(chunk()), SLOW_S)
        assert (await calls.append(appended(chunk(), table="b"), SLOW_S)).items == 1
        stats = await calls.get_stats(pb.GetStatsRequest(table="b"))
        assert [table.name for table in stats.tables] == ["b"]

    asyncio.run(act())


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (pb.SampleConfig(), "batch_size"),
        (pb.SampleConfig(batch_size=1, env_id="e"), "env_id"),
        (pb.SampleConfig(batch_size=1, max_timestamp=1), "max_timestamp"),
        (pb.SampleConfig(batch_size=1, priority_alpha=0.5), "priority_alpha"),
        (pb.SampleConfig(batch_size=1, prioritized=True), "uniform"),
    ],
)
def test_a_sample_that_the_table_does_not_offer_is_refused(config: pb.SampleConfig, word: str) -> None:
    """Never sampled as if it had not been asked for."""
    calls = calls_of(TableConfig(name="t", kind="steps", selector="uniform", remover="oldest"))

    async def act() -> None:
        await calls.append(appended(chunk()), SLOW_S)
        with pytest.raises(ValueError, match=word):
            await calls.sample(pb.SampleRequest(config=config), SLOW_S)
        right = pb.SampleConfig(batch_size=2, prioritized=False)
        assert len((await calls.sample(pb.SampleRequest(config=right), SLOW_S)).transitions) == 2

    asyncio.run(act())


async def given(*requests: pb.SampleStreamRequest) -> AsyncIterator[pb.SampleStreamRequest]:
    """A client that has sent all."""
    for request in requests:
        yield request


def test_a_stream_of_samples_ends_with_its_credits() -> None:
    """The limiter counts each of them."""
    rate = Rate(samples_per_insert=4, min_steps=1)
    calls = calls_of(TableConfig(name="t", kind="steps", selector="uniform", remover="oldest", rate=rate))

    async def act() -> None:
        await calls.append(appended(chunk()), SLOW_S)
        begin = pb.SampleRequest(config=pb.SampleConfig(batch_size=4), columnar=True)
        first = pb.SampleStreamRequest(sample=begin, credits=2)
        more = pb.SampleStreamRequest(credits=1)
        answers = [answer async for answer in calls.sample_stream(given(first, more))]
        assert [answer.sample.rows.count for answer in answers] == [4, 4, 4]
        assert calls.replay.tables["t"].limiter.sampled == 12

    asyncio.run(act())


def test_a_stream_must_begin_with_what_it_is_of(calls: Calls) -> None:
    """An empty stream, too, is an error that states it."""

    async def act() -> None:
        for requests in ((), (pb.SampleStreamRequest(credits=1),)):
            with pytest.raises(ValueError, match="begin"):
                _ = [answer async for answer in calls.sample_stream(given(*requests))]

    asyncio.run(act())


STEPS = TableConfig(name="s", kind="steps", selector="prioritised", remover="oldest", seed=1)


def draw(number: int, writer: str = "w", **more: Any) -> pb.SampleRequest:
    """One of a writer's samples."""
    config = pb.SampleConfig(batch_size=4)
    return pb.SampleRequest(config=config, columnar=True, writer=writer, number=number, **more)


def revised(of: pb.SampleResponse, priority: float) -> pb.UpdatePrioritiesRequest:
    """The same priority for all steps of a sample."""
    return pb.UpdatePrioritiesRequest(
        slots=of.rows.slots, generations=of.rows.generations, new_priorities=[priority] * of.rows.count
    )


def test_a_sample_that_is_asked_for_again_is_drawn_once() -> None:
    """Also by a call that waited meanwhile; a sample without a writer is always new."""

    async def act() -> None:
        calls = calls_of(STEPS)
        waiting = [asyncio.ensure_future(calls.sample(draw(1), SLOW_S)) for _ in range(2)]
        await asyncio.sleep(0)
        await calls.append(appended(chunk(steps=8)), SLOW_S)
        first, second = await asyncio.gather(*waiting)
        again = await calls.sample(draw(1), SLOW_S)
        assert first == second == again
        assert calls.replay.stats()[0].sampled == 4
        await calls.append(appended(chunk(first=8, steps=8)), SLOW_S)
        following = await calls.sample(draw(2), SLOW_S)
        assert (first.accepted, following.accepted) == (8, 16)
        for number in (1, 0):
            with pytest.raises(ValueError, match=f"number is {number}; writer 'w' had 2"):
                await calls.sample(draw(number), SLOW_S)
        await calls.sample(draw(0, writer=""), SLOW_S)
        await calls.sample(draw(0, writer=""), SLOW_S)
        assert calls.replay.stats()[0].sampled == 16

    asyncio.run(act())


def test_priorities_of_a_sample_are_set_once_before_it_is_drawn() -> None:
    """By the first call that brings them, though it draws nothing yet; a fault is named by its path."""

    async def act() -> None:
        calls = calls_of(STEPS)
        await calls.append(appended(chunk(steps=8)), SLOW_S)
        first = await calls.sample(draw(1), SLOW_S)
        calls.replay.clear("s", pb.ClearRequest())
        late = draw(2, priorities=revised(first, 2.0))
        for _ in range(2):
            with pytest.raises(Failure, match="too few steps"):
                await calls.sample(late, 0.01)
        assert calls.replay.stats()[0].late["priority"] == 4
        short = revised(first, 2.0)
        del short.new_priorities[0]
        with pytest.raises(ValueError, match="priorities: slots has 32 bytes; 3 new_priorities need 24"):
            await calls.sample(draw(3, priorities=short), 0.01)

    asyncio.run(act())


def test_the_newest_samples_of_few_writers_are_kept() -> None:
    """One that came after many others is forgotten, and drawn anew."""

    async def act() -> None:
        calls = calls_of(STEPS)
        await calls.append(appended(chunk(steps=8)), SLOW_S)
        for writer in range(MOST_DRAWS + 1):
            await calls.sample(draw(1, writer=f"w{writer}"), SLOW_S)
        before = calls.replay.stats()[0].sampled
        await calls.sample(draw(1, writer="w1"), SLOW_S)
        assert calls.replay.stats()[0].sampled == before
        await calls.sample(draw(1, writer="w0"), SLOW_S)
        assert calls.replay.stats()[0].sampled == before + 4

    asyncio.run(act())
