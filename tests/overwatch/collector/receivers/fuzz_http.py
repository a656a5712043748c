"""Many clients of the OTLP/HTTP door over kept connections, counting what it answers."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

from overwatch.collector.signals import WIRES
from tests.overwatch.collector.receivers.fuzzing import Input, corpus
from tests.overwatch.collector.test_fuzz_listeners import mutated

WORKERS: Final = 32
ENDED: Final = 0
"""Counted where the connection ended without an answer."""
DEADLINE_S: Final = 30.0
"""No answer takes so long."""


def whole(sent: Input) -> bytes:
    """A request with honest framing."""
    packing = f"Content-Encoding: {sent.packing}\r\n" if sent.packing else ""
    head = (
        f"POST {WIRES[sent.signal].path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {sent.kind}\r\n"
        f"{packing}Content-Length: {len(sent.body)}\r\n\r\n"
    )
    return head.encode() + sent.body


def torn(seed: int, count: int) -> Iterator[bytes]:
    """Requests mutated anywhere, head and framing included."""
    chance = random.Random(seed)  # noqa: S311 a test's own chance
    known = [whole(sent) for sent in corpus()]
    for _ in range(count):
        yield mutated(chance, chance.choice(known))


async def ask_all(port: int, requests: Iterator[bytes], *, keep: bool) -> Counter[int]:
    """Send everything; `keep` where one connection is good for many. Counts by status."""
    seen: Counter[int] = Counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(WORKERS):
            group.create_task(_work(port, requests, seen, keep=keep))
    return seen


async def _work(port: int, requests: Iterator[bytes], seen: Counter[int], *, keep: bool) -> None:
    """One client; all share what is still to be sent."""
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for data in requests:
        if streams is None:
            streams = await asyncio.open_connection("127.0.0.1", port)
        status, goes_on = await _query(*streams, data)
        seen[status] += 1
        if not (goes_on and keep):
            streams[1].close()
            streams = None
    if streams is not None:
        streams[1].close()


async def _query(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> tuple[int, bool]:
    """The status of the answer, and whether the connection is good for another request."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            status = int(lines[0].split()[1])
            length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
            await reader.readexactly(length)
            return status, "connection: close" not in lines
    except (asyncio.IncompleteReadError, ConnectionError):
        return ENDED, False
