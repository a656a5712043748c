"""The replay client beside real server processes: killed, full, away, several, and lying."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.blocking import BlockingReplayClient
from overwatch_rl.replay.client import Access, Leased, Patience, ReplayClient, ReplayError, shard_of
from overwatch_rl.replay.protocol import SERVICE, STREAM
from tests.overwatch.collector import pki
from tests.overwatch_rl.replay.serving import ENCODING, chunk, message, served
from tests.ports import free_port

QUICK = Patience(first_pause_s=0.02, longest_pause_s=0.2)
TABLE = "experience"


@asynccontextmanager
async def client(*servers: str, **given: Any) -> AsyncIterator[ReplayClient]:
    """One that is closed at the end."""
    made = ReplayClient(servers, patience=QUICK, **given)
    try:
        yield made
    finally:
        await made.close()


def first_steps(leased: Leased) -> list[int]:
    """Where the chunks of a lease begin."""
    return [item.chunk.first_step for item in leased.lease.items]


async def taken(stream: AsyncIterator[Leased], count: int) -> list[Leased]:
    """So many leases."""
    return [await anext(stream) for _ in range(count)]


def test_appends_go_on_after_the_servers_death_without_what_it_held(tmp_path: Path) -> None:
    """Killed between appends and while one waits: degraded meanwhile; then the encoding is sent again."""
    port = free_port()
    states: list[str] = []

    async def act() -> None:
        turned = asyncio.Event()

        def turn(state: str, _: str) -> None:
            states.append(state)
            turned.set()

        async with client(f"127.0.0.1:{port}", on_state=turn) as writer:
            with served(tmp_path, port=port) as server:
                await writer.declare(TABLE, ENCODING)
                await writer.append(TABLE, [chunk(first=4 * one) for one in range(3)])
                server.kill()
            appending = asyncio.ensure_future(writer.append(TABLE, [chunk(first=12)]))
            await turned.wait()
            with served(tmp_path, port=port):
                assert (await appending).steps == 4
                assert writer.state == "ok"
                assert [table.steps for table in (await writer.stats())[0]] == [4]

    asyncio.run(act())
    assert states == ["degraded", "ok"]


def test_an_append_that_failed_may_be_repeated_and_is_stored_once(tmp_path: Path) -> None:
    """The answer is lost after the server stored it: the same chunks again change nothing."""

    async def act() -> None:
        with served(tmp_path) as server:
            async with lossy(server.address) as (address, lose), client(address) as writer:
                await writer.declare(TABLE, ENCODING)
                chunks = [chunk(first=4 * one) for one in range(3)]
                lose.set()
                with pytest.raises(ReplayError):
                    await writer.append(TABLE, chunks, timeout_s=0.5)
                lose.clear()
                assert (await writer.append(TABLE, chunks)).steps == 12
                assert (await writer.append(TABLE, list(map(copied, chunks)))).steps == 12
                assert [table.steps for table in (await writer.stats())[0]] == [24]

    asyncio.run(act())


def copied(of: Any) -> Any:
    """Another chunk with the same content."""
    return chunk(first=of.first_step)


@asynccontextmanager
async def lossy(address: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A proxy of calls with one answer, which loses answers of appends while the event is set."""
    lose = asyncio.Event()
    channel = aio.insecure_channel(address)

    class Through(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            call = channel.unary_unary(details.method)

            async def answer(body: bytes, context: Any) -> bytes:
                got: bytes = await call(body)
                if lose.is_set() and details.method.endswith("/Append"):
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
                return got

            return grpc.unary_unary_rpc_method_handler(answer)

    proxy = aio.server(handlers=[Through()])
    port = proxy.add_insecure_port("127.0.0.1:0")
    await proxy.start()
    try:
        yield f"127.0.0.1:{port}", lose
    finally:
        await proxy.stop(None)
        await channel.close()


def test_a_full_table_is_waited_for_without_being_degraded(tmp_path: Path) -> None:
    """The append ends once an acknowledgement makes room."""

    async def act() -> None:
        with served(tmp_path, tables=[f"{TABLE}:items=2"]) as server:
            async with client(server.address) as both:
                await both.declare(TABLE, ENCODING)
                await both.append(TABLE, [chunk(first=0), chunk(first=4)])
                appending = asyncio.ensure_future(both.append(TABLE, [chunk(first=8)]))
                stream = both.stream(TABLE, "l", 4)
                (leased,) = await taken(stream, 1)
                assert not appending.done()
                assert await both.acknowledge(TABLE, "l", [leased.lease.number]) == 1
                assert (await appending).items == 1
                assert both.state == "ok"

    asyncio.run(act())


def test_a_deadline_ends_a_call_with_its_reason(tmp_path: Path) -> None:
    """Of a server that is away, and of a table that stays full."""

    async def act() -> None:
        async with client(f"127.0.0.1:{free_port()}") as alone:
            with pytest.raises(ReplayError, match=r"UNAVAILABLE"):
                await alone.declare(TABLE, ENCODING, timeout_s=0.3)
            assert alone.state == "degraded"
        with served(tmp_path, tables=[f"{TABLE}:items=1"]) as server:
            async with client(server.address) as writer:
                await writer.declare(TABLE, ENCODING)
                await writer.append(TABLE, [chunk()])
                with pytest.raises(ReplayError, match=r"RESOURCE_EXHAUSTED: table experience is full"):
                    await writer.append(TABLE, [chunk(first=4)], timeout_s=0.3)

    asyncio.run(act())


def test_a_stream_goes_on_when_its_server_is_back(tmp_path: Path) -> None:
    """With what actors append then, numbered on; before, depth bounds what is leased ahead."""
    port = free_port()

    async def act() -> None:
        async with client(f"127.0.0.1:{port}") as both:
            with served(tmp_path, port=port) as server:
                await both.declare(TABLE, ENCODING)
                await both.append(TABLE, [chunk(first=4 * one) for one in range(12)])
                stream = both.stream(TABLE, "l", 4, depth=2)
                found = await taken(stream, 3)
                while (stats := (await both.stats())[0][0]).leases != 5:
                    assert stats.leases is not None
                    assert stats.leases < 5
                server.kill()
            with served(tmp_path, port=port):
                found += await taken(stream, 2)
                await both.append(TABLE, [chunk(first=4 * one) for one in range(20, 24)])
                found += await taken(stream, 4)
                began = [first_steps(one)[0] for one in found]
                assert began == [0, 4, 8, 12, 16, 80, 84, 88, 92]
                numbers = [one.lease.number for one in found]
                assert numbers == sorted(set(numbers))
                assert await both.acknowledge(TABLE, "l", [numbers[-1]]) == 4
                assert both.state == "ok"
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(act())


def test_a_learner_that_resumes_gets_what_its_checkpoint_lacks(tmp_path: Path) -> None:
    """Leases after the cursor come again, flagged; those before it do not."""

    async def act() -> None:
        with served(tmp_path) as server:
            async with client(server.address) as first:
                await first.declare(TABLE, ENCODING)
                await first.append(TABLE, [chunk(first=4 * one) for one in range(3)])
                leases = await taken(first.stream(TABLE, "l", 4, depth=1), 2)
            async with client(server.address) as second:
                (resumed,) = await second.resume(TABLE, "l", [leases[0].lease.number])
                assert (resumed.acknowledged, resumed.gap) == (1, 0)
                again = await taken(second.stream(TABLE, "l", 4, after=[resumed.next_number - 1]), 2)
                assert [first_steps(one) for one in again] == [[4], [8]]
                assert again[0].lease.items[0].is_redelivered
                assert await second.extend(TABLE, "l") == 2

    asyncio.run(act())


def test_shards_have_an_environment_each_and_cursors_of_their_own(tmp_path: Path) -> None:
    """All chunks of an environment are on the server that its name selects; all come out of the stream."""

    async def act() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with served(tmp_path / "a") as one, served(tmp_path / "b") as other:
            async with client(one.address, other.address) as both:
                await both.declare(TABLE, ENCODING)
                envs = [f"env-{number}" for number in range(8)]
                await both.append(TABLE, [chunk(env, first=4 * one) for env in envs for one in range(2)])
                found = await taken(both.stream(TABLE, "l", 4), 16)
                assert {one.shard for one in found} == {0, 1}
                for leased in found:
                    assert shard_of(leased.lease.items[0].chunk.env, 2) == leased.shard
                upto = [max(one.lease.number for one in found if one.shard == shard) for shard in (0, 1)]
                assert await both.acknowledge(TABLE, "l", upto) == 16
                with pytest.raises(ValueError, match="1 lease numbers for 2 servers"):
                    await both.resume(TABLE, "l", [0])

    asyncio.run(act())


def test_steps_are_sampled_in_columns_and_their_priorities_set(tmp_path: Path) -> None:
    """A priority for a step that was cleared is late; arrays are of the encoding's types."""

    async def act() -> None:
        with served(tmp_path, tables=["dqn:kind=steps,selector=prioritised,items=64"]) as server:
            async with client(server.address) as both:
                await both.declare("dqn", ENCODING)
                sampling = asyncio.ensure_future(both.sample("dqn", 8))
                await both.append("dqn", [chunk(first=0), chunk(first=4, end="terminated")])
                drawn = await sampling
                columns = drawn.sampled.columns
                assert columns["action"].dtype == np.int64
                assert np.array_equal(columns["observation"][:, 0], columns["action"] + 1)
                assert await both.update_priorities("dqn", drawn, np.ones(8)) == 0
                assert await both.clear(pb.ClearRequest(table="dqn")) == 8
                assert await both.update_priorities("dqn", drawn, np.ones(8)) == 8

    asyncio.run(act())


def test_a_chunk_larger_than_a_message_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    """And many chunks go in several requests."""

    async def act() -> None:
        with served(tmp_path, "--max-message-mib", "1") as server:
            async with client(server.address, access=Access(most_message_bytes=1 << 20)) as writer:
                await writer.declare(TABLE, ENCODING)
                many = [chunk(first=2_000 * one, steps=2_000) for one in range(64)]
                assert (await writer.append(TABLE, many)).items == 64
                with pytest.raises(ValueError, match="most_message_bytes"):
                    await writer.append(TABLE, [chunk(steps=100_000)])

    asyncio.run(act())


def test_a_token_and_tls_reach_the_server(tmp_path: Path) -> None:
    """A wrong token is an error at once, not after retries."""
    if pki.OPENSSL is None:
        pytest.skip("certificates are made by openssl")
    pki.authority(tmp_path, "ca")
    pki.signed(tmp_path, "server")
    (tmp_path / "token").write_text("0123456789abcdef")
    flags = [
        f"--{name}={tmp_path / file}"
        for name, file in (("token-file", "token"), ("tls-cert", "server.pem"), ("tls-key", "server.key"))
    ]

    async def act() -> None:
        with served(tmp_path, *flags) as server:
            url = f"grpcs://{server.address}"
            right = Access(token="0123456789abcdef", ca=tmp_path / "ca.pem")  # noqa: S106 of the tests
            async with client(url, access=right) as known:
                await known.declare(TABLE, ENCODING)
            wrong = Access(token="0123456789abcdeX", ca=tmp_path / "ca.pem")  # noqa: S106 of the tests
            async with client(url, access=wrong) as other:
                with pytest.raises(ReplayError, match="UNAUTHENTICATED"):
                    await other.declare(TABLE, ENCODING)

    asyncio.run(act())


def test_a_lease_of_a_server_that_lies_is_an_error_and_not_an_array(tmp_path: Path) -> None:
    """Columns that are too short never become arrays."""

    async def act() -> None:
        lease = pb.LeaseOf(
            number=1,
            encoding_hash=ENCODING.hash,
            items=[pb.Leased(chunk=message(chunk()))],
        )
        lease.items[0].chunk.steps = 5

        async def stream(requests: Any, context: Any) -> AsyncIterator[bytes]:
            yield pb.SampleStreamResponse(lease=lease).SerializeToString()

        async def encoding(body: bytes, context: Any) -> bytes:
            answer = pb.GetEncodingResponse(encoding=messages.encoding_message(ENCODING))
            return answer.SerializeToString()

        methods = {
            STREAM: grpc.stream_stream_rpc_method_handler(stream),
            "GetEncoding": grpc.unary_unary_rpc_method_handler(encoding),
        }
        liar = aio.server(handlers=[grpc.method_handlers_generic_handler(SERVICE.full_name, methods)])
        port = liar.add_insecure_port("127.0.0.1:0")
        await liar.start()
        async with client(f"127.0.0.1:{port}") as reader:
            with pytest.raises(
                ValueError, match=r"lease\.items\[0\]\.chunk: column 'observation' has 48 bytes"
            ):
                await taken(reader.stream(TABLE, "l", 4), 1)
        await liar.stop(None)

    asyncio.run(act())


def test_the_blocking_client_appends_from_several_threads(tmp_path: Path) -> None:
    """Each append whole; an error is raised where it was called."""
    with served(tmp_path) as server, closing(BlockingReplayClient([server.address])) as writer:
        writer.declare(TABLE, ENCODING)
        threads = [
            threading.Thread(target=writer.append, args=(TABLE, [chunk(f"env-{one}")])) for one in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.stats()[0][0].items == 8
        assert writer.state == "ok"
        with pytest.raises(ReplayError, match="NOT_FOUND"):
            writer.append("other", [chunk()], timeout_s=1.0)
        writer.close()
