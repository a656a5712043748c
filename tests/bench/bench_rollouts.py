"""The rollouts API beside the published server of its wire: groups in and out for each second of server CPU.

The same requests go to both, over eight connections, from another core: groups of 8 sequences of 512
tokens, then batches of 8 such groups until the queue is empty; in turns. Ours is durable (`fsync`), the
other keeps all in memory. CPU is the server's own, user and system, to the nanosecond. Then, ours alone:
the time to an answer beside one fdatasync of the same bytes in the same folder, in turns; and memory
beside a producer that is much too fast.
`OVERWATCH_BENCH_ATROPOS` names a Python that has atroposlib 0.4.0. Prints, gates nothing.

    python tests/bench/bench_rollouts.py [--quick] [--pairs 3] [--groups 160]
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.doors.servers import first_core, until
from tests.ports import free_port

SEQUENCES, TOKENS = 8, 512
BATCH = 8 * SEQUENCES
CONNECTIONS = 8
COMPARATOR = "OVERWATCH_BENCH_ATROPOS"
TRAINER = {
    "wandb_group": "", "wandb_project": "", "batch_size": BATCH, "max_token_len": TOKENS,
    "checkpoint_dir": "", "save_checkpoint_interval": 1, "starting_step": 0, "num_steps": -1,
}  # fmt: skip
ENV = {"max_token_length": TOKENS, "desired_name": "bench", "weight": 1.0, "group_size": SEQUENCES}
_SCHEDULED = 2
"""Of a process's clocks the one that the scheduler keeps, of all its threads."""
PLAIN, GZIP = {"Accept-Encoding": "identity"}, {"Accept-Encoding": "gzip, deflate"}


@dataclass(frozen=True, slots=True)
class Server:
    """One that listens."""

    port: int
    process: psutil.Process

    def cpu(self) -> float:
        """Seconds that it used, user and system."""
        return time.clock_gettime(~self.process.pid << 3 | _SCHEDULED)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One call over a connection of its own."""
        line = self.connect()
        try:
            line.request(method, path, None if body is None else json.dumps(body), PLAIN | JSON)
            return json.loads(line.getresponse().read())
        finally:
            line.close()

    def connect(self) -> http.client.HTTPConnection:
        """A connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


JSON = {"Content-Type": "application/json"}


@contextmanager
def started(command: list[str], port: int, folder: Path) -> Iterator[Server]:
    """A server on the first core, its trainer and its environment registered."""
    with first_core(), (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    server = Server(port, psutil.Process(process.pid))

    def answers() -> bool:
        try:
            return bool(server.call("GET", "/"))
        except (OSError, http.client.HTTPException):
            return False

    try:
        until(answers, 90)
        server.call("POST", "/register", TRAINER)
        server.call("GET", "/batch")
        server.call("POST", "/register-env", ENV)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def ours(folder: Path, *flags: str) -> AbstractContextManager[Server]:
    """This project's, durable unless flags set otherwise."""
    port = free_port()
    command = [
        sys.executable, "-m", "overwatch_rl.cli", "rollouts", "--listen", f"127.0.0.1:{port}",
        "--folder", str(folder / "kept"), "--no-telemetry", *flags,
    ]  # fmt: skip
    return started(command, port, folder)


def published(python: str, folder: Path) -> AbstractContextManager[Server]:
    """The published one, as its command starts it."""
    port = free_port()
    command = [python, "-m", "atroposlib.cli.run_api", "--host", "127.0.0.1", "--port", str(port)]
    return started(command, port, folder)


def bodies(count: int) -> list[bytes]:
    """Groups as environments send them: tokens, masks whose first quarter is a prompt, a score each."""
    chance = random.Random(0)  # noqa: S311 filling
    made = []
    for _ in range(count):
        tokens = [[chance.randrange(150_000) for _ in range(TOKENS)] for _ in range(SEQUENCES)]
        masks = [[-100] * (TOKENS // 4) + row[TOKENS // 4 :] for row in tokens]
        scores = [chance.random() for _ in range(SEQUENCES)]
        made.append(json.dumps({"tokens": tokens, "masks": masks, "scores": scores, "env_id": 0}).encode())
    return made


def send(server: Server, groups: list[bytes]) -> Counter[int]:
    """Send each once over some connections; how often each status was answered."""

    def some(mine: list[bytes]) -> Counter[int]:
        line, statuses = server.connect(), Counter[int]()
        for group in mine:
            line.request("POST", "/scored_data", group, JSON)
            answer = line.getresponse()
            answer.read()
            statuses[answer.status] += 1
        line.close()
        return statuses

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return sum(pool.map(some, [groups[place::CONNECTIONS] for place in range(CONNECTIONS)]), Counter())


def take(server: Server, headers: dict[str, str]) -> int:
    """Take batches until there is none; how many groups came."""
    line, found = server.connect(), 0
    while True:
        line.request("GET", "/batch", headers=headers)
        answer = line.getresponse()
        data = answer.read()
        if len(data) < 10_000:
            return found
        found += BATCH // SEQUENCES


def rates(serving: AbstractContextManager[Server], groups: list[bytes]) -> dict[str, float]:
    """Groups for each second of server CPU: in, out, and out to who takes gzip."""
    with serving as server:
        warm_up = groups[: BATCH // SEQUENCES]
        send(server, warm_up)
        take(server, PLAIN)
        found = {}
        for way, headers in (("out", PLAIN), ("out, gzip", GZIP)):
            before = server.cpu()
            statuses = send(server, groups)
            between = server.cpu()
            assert statuses == {200: len(groups)}, statuses
            came = take(server, headers)
            after = server.cpu()
            assert came == len(groups), f"{came} of {len(groups)} groups came"
            found.setdefault("in", len(groups) / (between - before))
            found[way] = came / (after - between)
        return found


def answer_times(folder: Path, groups: list[bytes]) -> tuple[list[float], list[float]]:
    """Milliseconds to an answer of one sender, and of one fdatasync of as many bytes, in turns."""
    waits, syncs = [], []
    file = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY)
    with ours(folder) as server:
        line = server.connect()
        for number, group in enumerate(groups):
            began = time.perf_counter()
            os.pwrite(file, group, number * len(group))
            os.fdatasync(file)
            synced = time.perf_counter()
            line.request("POST", "/scored_data", group, JSON)
            answer = line.getresponse()
            answer.read()
            waits.append((time.perf_counter() - synced) * 1000)
            syncs.append((synced - began) * 1000)
            assert answer.status == 200
            if number % 200 == 199:
                take(server, PLAIN)
        line.close()
    os.close(file)
    return sorted(waits), sorted(syncs)


def pressed(folder: Path, groups: list[bytes], seconds: float) -> tuple[Counter[int], list[float], int]:
    """A producer that never pauses beside a trainer of a batch every two seconds: statuses, MiB, taken."""
    statuses, sizes, taken = Counter[int](), [], 0
    with ours(folder, "--max-memory-mib", "16") as server:
        until_s = time.monotonic() + seconds
        with ThreadPoolExecutor(CONNECTIONS) as pool:

            def flood(_: int) -> Counter[int]:
                found, line = Counter[int](), server.connect()
                while time.monotonic() < until_s:
                    line.request("POST", "/scored_data", groups[sum(found.values()) % len(groups)], JSON)
                    answer = line.getresponse()
                    answer.read()
                    found[answer.status] += 1
                line.close()
                return found

            work = [pool.submit(flood, number) for number in range(CONNECTIONS)]
            while time.monotonic() < until_s:
                time.sleep(0.5)
                if len(sizes) % 4 == 3:
                    taken += len(server.call("GET", "/batch")["batch"] or ())
                sizes.append(server.process.memory_info().rss / (1 << 20))
            for done in work:
                statuses += done.result()
    return statuses, sizes, taken


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--groups", type=int, default=160)
    parser.add_argument("--seconds", type=float, default=20, help="of the producer that is too fast")
    parser.add_argument("--quick", action="store_true", help="one pair, 80 groups, 10 seconds")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.groups, options.seconds = 1, 80, 10.0
    groups = bodies(options.groups)
    load = os.getloadavg()[0]
    print(f"groups of {SEQUENCES} x {TOKENS} tokens, {len(groups[0]) >> 10} KiB of JSON; load {load:.1f}")
    servers: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {"Overwatch, fsync": ours}
    python = os.environ.get(COMPARATOR)
    if python:
        servers["atroposlib 0.4.0, in memory"] = partial(published, python)
    else:
        print(f"the published server is left out: {COMPARATOR} names no Python that has atroposlib 0.4.0")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(options.pairs):
        for name, serving in servers.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(rates(serving(Path(folder)), groups))
    print(f"{'groups a second of server CPU':32}{'in':>26}{'out':>28}{'out, gzip':>26}")
    for name, rows in found.items():
        cells = [spread([row[way] for row in rows]) for way in ("in", "out", "out, gzip")]
        print(f"{name:32}{cells[0]:>26}{cells[1]:>28}{cells[2]:>26}")
    if python:
        mine, other = found.values()
        for way in ("in", "out", "out, gzip"):
            ratios = [a[way] / b[way] for a, b in zip(mine, other, strict=True)]
            least, most = min(ratios), max(ratios)
            print(f"  {way}: {statistics.median(ratios):.1f} times ({least:.1f} to {most:.1f})")
    with tempfile.TemporaryDirectory() as folder:
        waits, syncs = answer_times(Path(folder), (groups * 2)[: 2 * options.groups])
    for what, times in (("answer, one sender", waits), ("one fdatasync of as many bytes", syncs)):
        print(f"{what:32}p50 {statistics.median(times):.2f} ms, p99 {times[int(len(times) * 0.99)]:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        statuses, sizes, taken = pressed(Path(folder), groups, options.seconds)
    sent, third = sum(statuses.values()), max(1, len(sizes) // 3)
    print(
        f"a producer {sent / max(1, taken):.0f} times too fast: {dict(statuses)}, {taken} groups taken; "
        f"memory {max(sizes[:third]):.0f} MiB at most in the first third, {max(sizes[-third:]):.0f} last"
    )


if __name__ == "__main__":
    main()
