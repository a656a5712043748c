"""Many clients of the OTLP/gRPC door, counting what it answers; and frames that no client of gRPC sends."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import grpc
import grpc.aio

from overwatch.collector.signals import WIRES
from overwatch.journal import Signal
from tests.overwatch.collector.raw_http2 import whole_call
from tests.overwatch.collector.receivers.fuzzing import Input, messages
from tests.overwatch.collector.test_fuzz_listeners import mutated

CHANNELS: Final = 4
CALLS: Final = 12
"""Calls at once on each channel."""
DEADLINE_S: Final = 30.0
"""No call takes so long."""
SILENCE_S: Final = 0.2
"""How long a test waits for a door that sends nothing."""
CLOSED: Final = "closed"
SILENT: Final = "silent"


def method(signal: Signal) -> str:
    """The one method of a signal's service."""
    return f"/{WIRES[signal].service}/Export"


async def ask_all(address: str, inputs: Iterator[Input]) -> Counter[str]:
    """Send every body as the message of a good call; counts by code."""
    seen: Counter[str] = Counter()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(CHANNELS)]
    async with asyncio.TaskGroup() as group:
        for channel in channels * CALLS:
            group.create_task(_work(channel, inputs, seen))
    for channel in channels:
        await channel.close()
    return seen


async def _work(channel: grpc.aio.Channel, inputs: Iterator[Input], seen: Counter[str]) -> None:
    calls = {signal: channel.unary_unary(method(signal)) for signal in WIRES}
    for sent in inputs:
        try:
            await calls[sent.signal](sent.body, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            seen[error.code().name] += 1
        else:
            seen[grpc.StatusCode.OK.name] += 1


def torn(seed: int, count: int) -> Iterator[bytes]:
    """All that a connection sends for one call, mutated anywhere."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    known = [whole_call(method(sent.signal), sent.body) for sent in messages()]
    for _ in range(count):
        yield mutated(chance, chance.choice(known))


async def tear_all(port: int, connections: Iterator[bytes], workers: int = 48) -> Counter[str]:
    """Send everything, each on a connection of its own; counts how they went."""
    seen: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_tear(port, connections, seen))
    return seen


async def _tear(port: int, connections: Iterator[bytes], seen: Counter[str]) -> None:
    for data in connections:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        seen[await _outcome(reader)] += 1
        writer.close()


async def _outcome(reader: asyncio.StreamReader) -> str:
    """How a connection went: closed by the door, or silent after what it had to send."""
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                if not await reader.read(1 << 16):
                    return CLOSED
    except ConnectionError:
        return CLOSED
    except TimeoutError:
        return SILENT
