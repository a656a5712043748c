"""Experience in a real Redis: killed, full, not durable, shared by two learners, and behind TLS."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.chunk import Chunk, Column, Encoding
from overwatch_rl.replay.client import Access, Leased, ReplayClient, ReplayError, State
from overwatch_rl.replay.lines import KINDS, kind_of
from overwatch_rl.replay.redis_streams import place_of
from tests.overwatch.collector import pki
from tests.overwatch_rl.recording import KeptRun
from tests.overwatch_rl.replay.serving import ENCODING, chunk, served
from tests.overwatch_rl.replay.test_client import QUICK, TABLE, client, first_steps, taken
from tests.overwatch_rl.replay.test_telemetry import gauges, tallies
from tests.overwatch_rl.servers import RedisServer, synced_redis

OTHER = Encoding(columns=(Column("observation", "float32"),))


@asynccontextmanager
async def learning(
    redis_server: RedisServer, cursor: int = 0, steps: int = 4, **given: Any
) -> AsyncIterator[tuple[ReplayClient, Any, Any]]:
    """A learner's life: its client, how it resumed, its stream."""
    async with client(redis_server.url, **given) as made:
        (resumed,) = await made.resume(TABLE, "learner", [cursor])
        stream = made.stream(TABLE, "learner", steps, 1, [resumed.next_number - 1])
        try:
            yield made, resumed, stream
        finally:
            await stream.aclose()


async def filled(redis_server: RedisServer, count: int, start: int = 0) -> None:
    """Append so many chunks of 4 steps by a client of its own."""
    async with client(redis_server.url) as writer:
        await writer.declare(TABLE, ENCODING)
        await writer.append(TABLE, [chunk(first=4 * (start + one)) for one in range(count)])


def flags(leases: Sequence[Leased]) -> list[bool]:
    """Which chunks of leases were served before."""
    return [item.is_redelivered for leased in leases for item in leased.lease.items]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_place_takes_and_gives_the_same_chunks(name: str, tmp_path: Path) -> None:
    """In order, whole, to the byte; what is acknowledged is gone."""

    async def act(address: str) -> None:
        async with client(address) as both:
            await both.declare(TABLE, ENCODING)
            await both.declare(TABLE, ENCODING)
            sent = [
                chunk(first=0),
                chunk(first=4, end="terminated"),
                chunk("env-1", 3, steps=2, end="truncated"),
            ]
            assert (await both.append(TABLE, sent)).steps == 10
            (resumed,) = await both.resume(TABLE, "l", [0])
            stream = both.stream(TABLE, "l", 5, 1, [resumed.next_number - 1])
            (first,) = await taken(stream, 1)
            assert [one.steps for one in sent[:2]] == [item.chunk.steps for item in first.lease.items]
            decoded = [ENCODING.decode(item.chunk) for item in first.lease.items]
            for own, found in zip(map(ENCODING.decode, sent[:2]), decoded, strict=True):
                assert {key: value.tobytes() for key, value in own.items()} == {
                    key: value.tobytes() for key, value in found.items()
                }
            assert flags([first]) == [False, False]
            assert await both.acknowledge(TABLE, "l", [first.lease.number]) == 2
            ((table,),) = await both.stats()
            assert (table.items, table.steps, table.accepted, table.acknowledged) == (1, 2, 3, 2)

    addresses = {
        "replay server": lambda: served(tmp_path),
        "Redis Streams": lambda: synced_redis(tmp_path / "redis"),
    }
    with addresses[name]() as server:
        asyncio.run(act(server.address if name == "replay server" else server.url))


def test_an_address_of_no_kind_is_refused_by_name() -> None:
    """The message names what there is."""
    assert {kind_of(f"{scheme}://h:1" if scheme else "h:1").schemes for scheme in ("", "grpcs", "redis")} == {
        kind.schemes for kind in KINDS.values()
    }
    with pytest.raises(ValueError, match=r"kafka:// is no place of experience; .*rediss://"):
        kind_of("kafka://h:1")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("durability=maybe", "durability is 'maybe'; leave it out, or write durability=stated"),
        ("max_items=0", "max_items is '0', not a whole number from 1"),
        ("max_mib=-1", "max_mib is '-1', not a whole number from 1"),
    ],
)
def test_a_wrong_address_names_what_is_wrong_and_no_password(query: str, why: str) -> None:
    """What is Redis's own stays in it."""
    with pytest.raises(ValueError, match=r"^redis://h:1/0: ") as raised:
        place_of(f"redis://user:secret@h:1/0?{query}")
    assert str(raised.value).endswith(why)
    place = place_of("redis://user:secret@h:1/0?max_items=5&max_mib=2&protocol=2")
    assert (place.url, place.where) == ("redis://user:secret@h:1/0?protocol=2", "redis://h:1/0")
    assert (place.capacity.items, place.capacity.bytes, place.is_stated) == (5, 2 << 20, False)


def request_of(number: int, *chunks: Chunk) -> pb.AppendRequest:
    """One of a writer's."""
    return pb.AppendRequest(
        table=TABLE,
        encoding_hash=ENCODING.hash,
        writer="w",
        number=number,
        chunks=[messages.chunk_message(one, ENCODING) for one in chunks],
    )


def test_a_repeated_request_is_stored_once_and_another_under_its_number_is_refused(tmp_path: Path) -> None:
    """The same writer and number, as after an answer that was lost; as a replay server does."""

    async def act(url: str) -> None:
        line = KINDS["Redis Streams"].line(url, Access(), QUICK, lambda _state, _why: None)
        await line.call(
            "Declare", pb.DeclareRequest(table=TABLE, encoding=messages.encoding_message(ENCODING)), 10
        )
        repeats = []
        for number in (1, 1, 2, 1, 2, 3):
            answer = await line.call("Append", request_of(number, chunk()), 10)
            assert answer.durable
            repeats.append(answer.is_repeat)
        assert repeats == [False, True, False, True, True, False]
        for other in (chunk(first=4), chunk(steps=5), chunk("env-1")):
            with pytest.raises(ReplayError, match="sent before with other chunks") as raised:
                await line.call("Append", request_of(3, other), 10)
            assert raised.value.is_final
        assert (await line.call("GetStats", pb.GetStatsRequest(), 10)).tables[0].items == 3
        await line.close()

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server.url))


def test_a_life_that_goes_on_gets_all_since_its_checkpoint_again(tmp_path: Path) -> None:
    """Flagged, in order; what the checkpoint contains is acknowledged by that, what follows is new."""

    async def act(server: RedisServer) -> None:
        await filled(server, 6)
        async with learning(server) as (_, _, stream):
            first = await taken(stream, 4)
        cursor = first[1].lease.number
        await filled(server, 1, 6)
        async with learning(server, cursor) as (one, resumed, stream):
            assert (resumed.redelivered, resumed.acknowledged, resumed.gap) == (2, 2, 0)
            again = await taken(stream, 5)
            assert [first_steps(leased) for leased in again] == [[8], [12], [16], [20], [24]]
            assert flags(again) == [True, True, False, False, False]
            await one.acknowledge(TABLE, "learner", [again[2].lease.number])
            ((table,),) = await one.stats()
            assert (table.queued, table.leased, table.acknowledged, table.leases) == (0, 2, 5, 2)
            assert (table.redelivered, table.sampled) == (2, 9)
        async with learning(server, cursor) as (_, resumed, stream):
            assert (resumed.gap, resumed.redelivered, resumed.is_unknown) == (3, 2, False)
            assert [first_steps(leased) for leased in await taken(stream, 2)] == [[20], [24]]

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


def test_a_second_learner_ends_the_first(tmp_path: Path) -> None:
    """The first one can neither read nor acknowledge any more, also where it waits for a chunk."""

    async def act(server: RedisServer) -> None:
        await filled(server, 2)
        async with learning(server) as (old, _, first):
            (leased,) = await taken(first, 1)
            await taken(first, 1)
            waiting = asyncio.ensure_future(anext(first))
            async with learning(server) as (_, _, second):
                assert first_steps(await anext(second)) == [0]
                with pytest.raises(ReplayError, match="another learner began after it") as raised:
                    await waiting
                assert raised.value.is_final
                with pytest.raises(ReplayError, match="another learner began after it"):
                    await old.acknowledge(TABLE, "learner", [leased.lease.number])
                assert first_steps(await anext(second)) == [4]

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


@pytest.mark.parametrize("bound", ["max_items=2", "max_mib=1"])
def test_a_full_table_is_waited_for_and_drops_nothing(bound: str, tmp_path: Path) -> None:
    """An acknowledgement makes room; nothing is degraded meanwhile, and too large a request is refused."""
    steps = 4 if bound.startswith("max_items") else 16_000

    async def act(server: RedisServer) -> None:
        async with client(f"{server.url}?{bound}") as both:
            await both.declare(TABLE, ENCODING)
            await both.append(TABLE, [chunk(first=0, steps=steps), chunk(first=steps, steps=steps)])
            third = [chunk(first=2 * steps, steps=steps)]
            with pytest.raises(ReplayError, match="full of what no checkpoint contains") as raised:
                await both.append(TABLE, third, timeout_s=3.0)
            assert not raised.value.is_final
            appending = asyncio.ensure_future(both.append(TABLE, third))
            (resumed,) = await both.resume(TABLE, "l", [0])
            stream = both.stream(TABLE, "l", steps, 1, [resumed.next_number - 1])
            (leased,) = await taken(stream, 1)
            assert not appending.done()
            await both.acknowledge(TABLE, "l", [leased.lease.number])
            await appending
            assert [first_steps(one) for one in await taken(stream, 2)] == [[steps], [2 * steps]]
            assert both.state == "ok"
            await stream.aclose()
            with pytest.raises(ReplayError, match="larger than the table") as raised:
                await both.append(TABLE, [chunk(first=one, steps=steps) for one in range(3)])
            assert raised.value.is_final

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


def test_all_that_was_answered_survives_the_death_of_redis(tmp_path: Path) -> None:
    """Chunks, leases, numbers of requests; a writer and a learner that were there go on by themselves."""
    states: list[str] = []

    async def act(server: RedisServer) -> None:
        turned = asyncio.Event()

        def turn(state: State, _: str) -> None:
            states.append(state)
            turned.set()

        async with (
            client(server.url, on_state=turn) as writer,
            learning_later(server, writer) as (reader, stream),
        ):
            (leased,) = await taken(stream, 1)
            waiting = asyncio.ensure_future(taken(stream, 3))
            server.kill()
            appending = asyncio.ensure_future(writer.append(TABLE, [chunk(first=8)]))
            await turned.wait()
            server.start()
            await appending
            await writer.append(TABLE, [chunk(first=12)])
            assert [first_steps(one) for one in await waiting] == [[4], [8], [12]]
            assert await reader.acknowledge(TABLE, "learner", [leased.lease.number]) == 1
            ((table,),) = await writer.stats()
            assert (table.items, table.accepted) == (3, 4)

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))
    assert states == ["degraded", "ok"]


@asynccontextmanager
async def learning_later(
    server: RedisServer, writer: ReplayClient
) -> AsyncIterator[tuple[ReplayClient, Any]]:
    """A life that begins after two chunks."""
    await writer.declare(TABLE, ENCODING)
    await writer.append(TABLE, [chunk(first=0), chunk(first=4)])
    async with learning(server) as (made, _, stream):
        yield made, stream


def test_a_redis_that_lost_its_data_is_noticed(tmp_path: Path) -> None:
    """The life that was there ends; the next one's cursor is unknown, and acknowledges nothing of others."""

    async def act(server: RedisServer) -> None:
        await filled(server, 3)
        async with learning(server) as (_, _, stream):
            leases = await taken(stream, 3)
            with redis.Redis.from_url(server.url) as raw:
                raw.flushall()
            with pytest.raises(ReplayError, match="Redis lost its data"):
                await anext(stream)
        async with client(server.url) as early:
            with pytest.raises(ReplayError, match="no encoding yet") as raised:
                await early.resume(TABLE, "learner", [leases[-1].lease.number], timeout_s=3.0)
            assert not raised.value.is_final
        await filled(server, 2)
        async with learning(server, leases[-1].lease.number) as (_, resumed, stream):
            assert (resumed.is_unknown, resumed.gap, resumed.acknowledged) == (True, 0, 0)
            assert resumed.next_number > leases[-1].lease.number
            assert flags(await taken(stream, 2)) == [False, False]

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--appendonly", "no"), r"CONFIG SET appendonly yes and redis-cli CONFIG SET appendfsync always"),
        (("--appendfsync", "everysec"), r"appendfsync everysec, so a crash loses what it answered"),
        (
            ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
            r"maxmemory-policy allkeys-lru, so it may drop experience",
        ),
        (("--rename-command", "CONFIG", "other"), r"CONFIG GET is refused .*add \?durability=stated"),
    ],
)
def test_a_redis_that_may_lose_what_it_answered_is_refused(
    words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    """For good, before anything is appended; what mends it is named, and mends it."""

    async def act(server: RedisServer) -> None:
        async with client(server.url) as writer:
            with pytest.raises(ReplayError, match=why) as raised:
                await writer.declare(TABLE, ENCODING)
            assert raised.value.is_final
        with redis.Redis.from_url(server.url) as raw:
            assert not raw.keys()
            if words[0] == "--rename-command":
                stated = f"{server.url}?durability=stated"
            else:
                stated = server.url
                raw.config_set("appendonly", "yes")
                raw.config_set("appendfsync", "always")
                raw.config_set("maxmemory-policy", "noeviction")
        async with client(stated) as writer:
            await writer.declare(TABLE, ENCODING)

    with synced_redis(tmp_path, *words) as server:
        asyncio.run(act(server))


def test_a_redis_that_starts_again_is_checked_again(tmp_path: Path) -> None:
    """What CONFIG SET changed is forgotten by then; nothing more is appended."""

    async def act(server: RedisServer) -> None:
        async with client(server.url) as writer:
            with redis.Redis.from_url(server.url) as raw:
                raw.config_set("appendfsync", "always")
            await writer.declare(TABLE, ENCODING)
            await writer.append(TABLE, [chunk()])
            server.kill()
            server.start()
            with pytest.raises(ReplayError, match="appendfsync everysec"):
                await writer.append(TABLE, [chunk()])

    with synced_redis(tmp_path, "--appendfsync", "everysec") as server:
        asyncio.run(act(server))


def test_a_redis_without_memory_is_waited_for(tmp_path: Path) -> None:
    """It refuses and drops nothing; with more memory the append goes on."""

    async def act(server: RedisServer) -> None:
        async with client(server.url) as writer:
            await writer.declare(TABLE, ENCODING)
            with redis.Redis.from_url(server.url) as raw:
                raw.config_set("maxmemory", "1")
                with pytest.raises(ReplayError, match="Redis is at its maxmemory") as raised:
                    await writer.append(TABLE, [chunk()], timeout_s=3.0)
                assert not raised.value.is_final
                assert writer.state == "ok"
                raw.config_set("maxmemory", "0")
            await writer.append(TABLE, [chunk()])

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


def test_what_it_cannot_do_names_the_replay_server(tmp_path: Path) -> None:
    """Sampling and clearing, another encoding, a stream without a life."""

    async def act(server: RedisServer) -> None:
        await filled(server, 1)
        async with client(server.url) as made:
            with pytest.raises(ReplayError, match="start overwatch-rl replay-server") as raised:
                await made.sample(TABLE, 4)
            assert raised.value.code == grpc.StatusCode.UNIMPLEMENTED
            with pytest.raises(ReplayError, match="start overwatch-rl replay-server"):
                await made.clear(pb.ClearRequest(table=TABLE))
            with pytest.raises(ReplayError, match="another encoding"):
                await made.declare(TABLE, OTHER)
            with pytest.raises(ReplayError, match="begins with Resume"):
                await anext(made.stream(TABLE, "learner", 4))

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


def test_runs_that_share_a_redis_do_not_meet(tmp_path: Path) -> None:
    """Each has its own encoding and its own chunks."""

    async def act(server: RedisServer) -> None:
        async with (
            client(server.url, access=Access(namespace="a")) as one,
            client(server.url, access=Access(namespace="b")) as other,
        ):
            await one.declare(TABLE, ENCODING)
            await other.declare(TABLE, OTHER)
            await one.append(TABLE, [chunk()])
            assert [[table.items for table in of] for of in (await one.stats(), await other.stats())[0]] == [
                [1]
            ]
            assert (await other.stats())[0][0].items == 0

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))


@pytest.mark.skipif(pki.OPENSSL is None, reason="makes certificates with openssl: install it")
def test_it_is_reached_by_tls_and_a_password(tmp_path: Path) -> None:
    """The authority is checked, and a wrong password is refused for good."""
    pki.authority(tmp_path, "ca")
    pki.signed(tmp_path, "server")
    words = [
        *("--tls-port", "{port}", "--port", "0", "--tls-cert-file", str(tmp_path / "server.pem")),
        *("--tls-key-file", str(tmp_path / "server.key"), "--tls-auth-clients", "no"),
        *("--tls-ca-cert-file", str(tmp_path / "ca.pem"), "--requirepass", "0123456789abcdef"),
    ]

    async def act(url: str) -> None:
        right = Access(token="0123456789abcdef", ca=tmp_path / "ca.pem")  # noqa: S106 of the tests
        async with client(url, access=right) as known:
            await known.declare(TABLE, ENCODING)
        wrong = Access(token="another", ca=tmp_path / "ca.pem")  # noqa: S106 of the tests
        async with client(url, access=wrong) as other:
            with pytest.raises(ReplayError, match="give the password with --replay-token") as raised:
                await other.declare(TABLE, ENCODING)
            assert raised.value.is_final
        async with client(url, access=Access(token="0123456789abcdef")) as strange:  # noqa: S106 of the tests
            with pytest.raises(ReplayError, match=r"(?i)certificate"):
                await strange.declare(TABLE, ENCODING, timeout_s=3)

    with synced_redis(tmp_path / "redis", *words) as server:
        asyncio.run(act(server.url.replace("redis://", "rediss://")))


def test_a_learner_reports_the_table_since_nobody_else_does(tmp_path: Path) -> None:
    """What stands, and what was done from its beginning on, by the rows of replay."""
    run = KeptRun(role="learner")

    async def act(server: RedisServer) -> None:
        await filled(server, 5)
        async with learning(server, run=run) as (reader, _, stream):
            leases = await taken(stream, 2)
            await reader.acknowledge(TABLE, "learner", [leases[0].lease.number])
            await filled(server, 3, 5)
            while seen(run).get("items") != 7:  # noqa: ASYNC110 a run has nothing else to wait for
                await asyncio.sleep(0.05)

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))
    found = seen(run)
    assert (found["items"], found["steps"], found["leases"]) == (7, 28, 2)
    assert found["memory"] > 0
    assert tallies(run)["inserted", TABLE] <= 3
    assert run.link.refused == []


def seen(run: KeptRun) -> dict[str, float]:
    """The newest gauges of replay."""
    return {name.rpartition(".")[2]: value for name, value in gauges(run).items()}


class Trained:
    """What checkpoints of a learner contain, as of the one that survives."""

    def __init__(self) -> None:
        self.cursor = 0
        self.steps: Counter[tuple[str, int]] = Counter()

    def learn(self, chunks: Sequence[Chunk], number: int) -> None:
        """A checkpoint with these beyond the last one."""
        self.steps.update((one.env, one.first_step) for one in chunks)
        self.cursor = number


@pytest.mark.parametrize("seed", range(3))
def test_every_chunk_is_trained_once_whoever_dies(seed: int, tmp_path: Path) -> None:
    """Redis, learners and writers die at random; in the checkpoints' history each chunk is there once."""
    chance = random.Random(seed)  # noqa: S311 a test
    trained = Trained()
    sent: dict[str, int] = dict.fromkeys(("a", "b"), 0)

    async def write(server: RedisServer, env: str, count: int) -> None:
        async with client(server.url) as writer:
            await writer.declare(TABLE, ENCODING)
            for _ in range(count):
                await writer.append(TABLE, [chunk(env, first=4 * sent[env])])
                sent[env] += 1

    async def learn(server: RedisServer, leases: int) -> None:
        async with learning(server, trained.cursor, steps=chance.choice((4, 8))) as (made, _, stream):
            unsaved: list[Chunk] = []
            for _ in range(leases):
                leased = await asyncio.wait_for(anext(stream), 60)
                unsaved += [item.chunk for item in leased.lease.items]
                if chance.random() < 0.5:
                    trained.learn(unsaved, leased.lease.number)
                    unsaved = []
                    if chance.random() < 0.5:
                        await made.acknowledge(TABLE, "learner", [trained.cursor])

    async def die(server: RedisServer) -> None:
        await asyncio.sleep(chance.random() / 50)
        server.kill()
        server.start()

    async def act(server: RedisServer) -> None:
        for _ in range(6):
            writing = [write(server, env, 8) for env in sent]
            deaths = [die(server)] if chance.random() < 0.7 else []
            await asyncio.gather(*writing, *deaths)
            await asyncio.gather(learn(server, chance.randrange(1, 5)), *([die(server)] if deaths else []))
        while len(trained.steps) < sum(sent.values()):
            async with learning(server, trained.cursor) as (_, _, stream):
                leased = await asyncio.wait_for(anext(stream), 60)
                trained.learn([item.chunk for item in leased.lease.items], leased.lease.number)

    with synced_redis(tmp_path) as server:
        asyncio.run(act(server))
    assert set(trained.steps.values()) == {1}
    assert set(trained.steps) == {(env, 4 * one) for env, count in sent.items() for one in range(count)}
