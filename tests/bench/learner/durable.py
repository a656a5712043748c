"""Chunks through a table and out again: what durability costs, here and in Redis Streams.

In process: a table in memory beside the same one on disk, `fast` and `fsync`. Served: client and server
over TCP in processes of their own, CPU of both together; Redis with `appendfsync always`, bare, which is one
XADD a chunk in a pipeline, XREADGROUP, then XACK and XDEL, and by the replay client as learners and actors
use it. A request has 8 or 64 chunks of 64 steps; it is answered once it is on disk. All that was appended is
read back whole and acknowledged. Turns alternate; a ratio is of two turns beside each other.
"""

import asyncio
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import psutil
import redis

from overwatch.platform import keep_large_blocks
from overwatch_rl.replay.base import Capacity, Durability, TableConfig, Taken
from overwatch_rl.replay.chunk import Chunk, Column, Encoding
from overwatch_rl.replay.client import ReplayClient
from overwatch_rl.replay.service import Replay
from tests.ports import free_port

STEPS: Final = 64
SHAPES: Final = {"2.9 kB floats": ("float32", (726,), 8), "121 B codes": ("int8", (121,), 64)}
"""Dtype and shape of an observation, and chunks of a request."""
BARS: Final = "bars: fsync 0.5x of memory, 1x of Redis"


def encoding_of(dtype: str, shape: tuple[int, ...]) -> Encoding:
    """What PPO needs."""
    numbers = [Column(name, "float32") for name in ("log_probs", "value", "reward")]
    return Encoding((Column("observation", dtype, shape), Column("action", "int64"), *numbers))


def chunks_of(encoding: Encoding, count: int) -> list[Chunk]:
    """One request's; their bytes are random."""
    chance = np.random.default_rng(0)
    return [
        Chunk(
            run="bench",
            env=f"env-{env}",
            episode=0,
            first_step=0,
            steps=STEPS,
            lineage=1,
            version=1,
            end="terminated",
            columns={column.name: chance.bytes(STEPS * column.row_bytes) for column in encoding.columns},
        )
        for env in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Work:
    """What goes through in one turn."""

    encoding: Encoding
    chunks: list[Chunk]
    requests: int

    @property
    def steps(self) -> int:
        """Of a request."""
        return STEPS * len(self.chunks)

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        return self.requests * sum(chunk.size for chunk in self.chunks)


def section(*, quick: bool) -> None:
    """Measure and print."""
    keep_large_blocks()
    pairs = 3 if quick else 5
    print(f"MB in and out for each second of CPU; {BARS}")
    for name, (dtype, shape, count) in SHAPES.items():
        encoding = encoding_of(dtype, shape)
        work = Work(encoding, chunks_of(encoding, count), 100 if quick else 200)
        turns: dict[str, Callable[[Work], float]] = {
            level.value: lambda work, level=level: in_process(work, level)
            for level in Durability  # type: ignore[misc]
        }
        _compare(f"{name}, in process", turns, work, pairs)
        turns = {
            level.value: lambda work, level=level: served(work, level)  # type: ignore[misc]
            for level in (Durability.MEMORY, Durability.FSYNC)
        }
        if shutil.which("redis-server") is None:
            print("Redis is left out: there is no redis-server; install it")
        else:
            turns["redis always"] = lambda work: with_redis(_redis, work)
            turns["redis, adapter"] = lambda work: with_redis(_adapter, work)
        _compare(f"{name}, served", turns, work, pairs)


def _compare(name: str, turns: dict[str, Callable[[Work], float]], work: Work, pairs: int) -> None:
    """Each turn in its order, over and over; ratios of `fsync` to each other one."""
    found: dict[str, list[float]] = {turn: [] for turn in turns}
    for _ in range(pairs):
        for turn, measure in turns.items():
            found[turn].append(work.size / measure(work) / 1e6)
    mine = found["fsync"]
    for turn, rates in found.items():
        ratios = [a / b for a, b in zip(mine, rates, strict=True)]
        spread = f"fsync is {statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:28}{turn:14}{statistics.median(rates):8.0f}   {'' if turn == 'fsync' else spread}")


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bench-replay-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def in_process(work: Work, level: Durability) -> float:
    """Seconds of CPU of this process, the thread that writes included."""
    with _folder() as folder:
        config = TableConfig(
            name="t",
            durability=level,
            folder=None if level is Durability.MEMORY else folder / "t",
            capacity=Capacity(bytes=2 * work.size),
        )
        replay = Replay([config])
        replay.declare("t", work.encoding)
        began = time.process_time()
        for _ in range(work.requests):
            taken = replay.append("t", work.encoding.hash, work.chunks)
            if not isinstance(taken, Taken):
                sys.exit(f"not taken: {taken}")
            taken.safe.result()
        for number in range(work.requests):
            lease = replay.lease("t", "l", work.steps, number)
            if lease is None:
                sys.exit("no lease")
            for item in lease.items:
                work.encoding.decode(item.chunk)
            replay.acknowledge("t", "l", number + 1)
        replay.close()
        return time.process_time() - began


def served(work: Work, level: Durability) -> float:
    """Seconds of CPU of a client and a server."""
    with _folder() as folder:
        mib = 2 * work.size // (1 << 20) + 1
        command = [
            *(sys.executable, "-m", "overwatch_rl.cli", "replay-server", "--listen", "127.0.0.1:0"),
            *("--folder", str(folder), "--table", f"t:durability={level.value},mib={mib}", "--no-telemetry"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = re.search(r"grpc://(\S+?),", process.stdout.readline())
            if address is None:
                sys.exit("the replay server did not start")
            found = asyncio.run(_through(work, address[1], psutil.Process(process.pid), is_new=False))
            process.send_signal(signal.SIGTERM)
        return found


async def _through(work: Work, address: str, server: psutil.Process, *, is_new: bool) -> float:
    """`is_new`: a learner's life has to begin before it leases."""
    client = ReplayClient([address])
    await client.declare("t", work.encoding)
    began = time.process_time() + _cpu(server)
    for _ in range(work.requests):
        await client.append("t", work.chunks)
    left = work.requests
    after = (await client.resume("t", "l", [0]))[0].next_number - 1 if is_new else 0
    async for leased in client.stream("t", "l", work.steps, after=[after]):
        for item in leased.lease.items:
            work.encoding.decode(item.chunk)
        await client.acknowledge("t", "l", [leased.lease.number])
        left -= 1
        if not left:
            break
    spent = time.process_time() + _cpu(server) - began
    await client.close()
    return spent


def with_redis(through: Callable[[Work, "redis.Redis", psutil.Process], float], work: Work) -> float:
    """Seconds of CPU of a client and a redis-server that syncs before it answers."""
    with _folder() as folder:
        port = free_port()
        command = [
            *("redis-server", "--port", str(port), "--dir", str(folder), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                client = redis.Redis(port=port)
                _until_it_answers(client)
                return through(work, client, psutil.Process(process.pid))
            finally:
                process.terminate()


def _until_it_answers(client: "redis.Redis") -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _adapter(work: Work, client: "redis.Redis", server: psutil.Process) -> float:
    address = f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/0?max_mib=4096"
    return asyncio.run(_through(work, address, server, is_new=True))


def _redis(work: Work, client: "redis.Redis", server: psutil.Process) -> float:
    client.xgroup_create("t", "g", mkstream=True)
    began = time.process_time() + _cpu(server)
    for _ in range(work.requests):
        pipeline = client.pipeline(transaction=False)
        for chunk in work.chunks:
            head = msgspec.msgpack.encode(msgspec.structs.asdict(chunk) | {"columns": None})
            pipeline.xadd("t", {"head": head, "data": work.encoding.pack(chunk)})
        pipeline.execute()
    for _ in range(work.requests):
        entries = client.xreadgroup("g", "l", {"t": ">"}, count=len(work.chunks))[0][1]
        for _, fields in entries:
            head = msgspec.msgpack.decode(fields[b"head"])
            head["columns"] = work.encoding.unpack(fields[b"data"], head["steps"], head["end"])
            work.encoding.decode(Chunk(**head))
        pipeline = client.pipeline(transaction=False)
        names = [name for name, _ in entries]
        pipeline.xack("t", "g", *names)
        pipeline.xdel("t", *names)
        pipeline.execute()
    return time.process_time() + _cpu(server) - began


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
