"""Publishing 16 MB: what it costs the trainer's thread, beside one memcpy, and when an actor acts with it.

The cost is CPU of the thread in `publish` and `finished`, the memcpy that of one flat copy of the same bytes
into memory that was used before; turns alternate. Adoption is wall time from `publish` until an actor in a
process of its own has the version in its policy, so it includes signing, files, the disk, and the time until
it looks; CPU of the writer's process and of the actor's is beside it and does not depend on the machine's
load. The server of HTTP is a thread of this process.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil
import torch
from safetensors import TensorSpec, serialize
from safetensors.torch import load

from overwatch.objects.digests import sha256_of
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.publisher import Publisher, Publishing
from tests.bench.sdk.stats import quantile
from tests.overwatch_rl.servers import RedisServer
from tests.overwatch_rl.weights.serving import Server
from tests.ports import free_port

BAR: Final = 1.5
SHAPES: Final = [(1024, 1024), (1024,), (1024, 1024), (1024,), (512, 1024), (512,), (1024, 1024), (1024, 512)]
RUN: Final = "bench"
_WARM_UP: Final = 5
_SOURCE: Final = torch.randn(4, 1 << 20)


def section(*, quick: bool) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    held = {f"layer.{number}": torch.randn(shape) for number, shape in enumerate(SHAPES)}
    size = sum(tensor.numel() * 4 for tensor in held.values())
    print(f"{size / 2**20:.1f} MiB in {len(held)} tensors")
    _cost(held, size, 10 if quick else 60)
    _parts()
    for name, start in (("folder", _folder), ("redis", _redis), ("http", _http)):
        for megabytes in (1, 16):
            start(name, megabytes, 8 if quick else 40)


def _cost(held: dict[str, torch.Tensor], size: int, pairs: int) -> None:
    source, target = torch.randn(size // 4), torch.empty(size // 4)
    target.copy_(source)
    ours, plain = [], []
    with tempfile.TemporaryDirectory() as folder:
        publisher = Publisher(Publishing(run_id=RUN, folder=Path(folder)))
        for number in range(pairs + 4):  # The first few meet new memory.
            began = time.thread_time_ns()
            publisher.publish(Version(1, number), held)
            done = publisher.finished()
            taken = time.thread_time_ns() - began
            while not done:
                done = publisher.finished(60.0)
            began = time.thread_time_ns()
            target.copy_(source)
            copied = time.thread_time_ns() - began
            if number >= 4:
                ours.append(taken / 1e6)
                plain.append(copied / 1e6)
        publisher.close()
    ratios = sorted(one / other for one, other in zip(ours, plain, strict=True))
    ratio, low, high = statistics.median(ratios), ratios[0], ratios[-1]
    verdict = "met" if ratio <= BAR else "NOT MET"
    cost, one = statistics.median(ours), statistics.median(plain)
    print(f"trainer's thread: {cost:.2f} ms of CPU, one memcpy {one:.2f} ms")
    print(f"ratio {ratio:.2f} ({low:.2f} to {high:.2f}), bar {BAR}: {verdict}")


def _adoption(name: str, megabytes: int, publishing: Publishing, place: Place, count: int) -> None:
    rows = (megabytes << 20) // (4 * 8 * 512)
    held = {f"layer.{number}": torch.randn(rows, 512) for number in range(8)}
    publisher = Publisher(publishing)
    words = [sys.executable, "-m", "tests.bench.learner.adopting", msgspec.json.encode(place).decode()]
    whole, done, writers, actors = [], [], [], []
    spent = seen = 0.0
    with subprocess.Popen([*words, publisher.public], stdout=subprocess.PIPE, text=True) as actor:
        for number in range(count + _WARM_UP):
            time.sleep(random.uniform(0.02, 0.05))  # noqa: S311 at any moment of its waiting
            began = time.monotonic_ns()
            publisher.publish(Version(1, number), held)
            acted, cpu = _acted(actor, number)
            (one,) = publisher.finished(60.0)
            assert publisher._sender is not None
            own = sum(psutil.Process(publisher._sender.pid).cpu_times()[:2]) * 1e3
            if number >= _WARM_UP:
                whole.append((acted - began) / 1e6)
                done.append(one.duration_s * 1e3)
                actors.append(cpu / 1e6 - seen)
                writers.append(own - spent)
            spent, seen = own, cpu / 1e6
        actor.kill()
    publisher.close()
    print(
        f"{megabytes:3} MiB by way of {name:7} acts after {quantile(whole, 0.5):6.1f} ms, p99 "
        f"{quantile(whole, 0.99):6.1f} ms; published after {quantile(done, 0.5):6.1f} ms; CPU of the writer "
        f"{statistics.mean(writers):5.1f} ms, of the actor {quantile(actors, 0.5):5.1f} ms"
    )


def _acted(actor: "subprocess.Popen[str]", number: int) -> tuple[int, int]:
    """When it acted with a version first, and its CPU by then."""
    assert actor.stdout is not None
    for line in actor.stdout:
        found, acted, cpu = map(int, line.split())
        if found == number:
            return acted, cpu
    raise AssertionError("the actor ended")


def _parts() -> None:
    """What one version of 16 MiB costs in CPU, step by step, in this process."""
    held = torch.empty_like(_SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "artifact"

        def write() -> None:
            with path.open("wb") as file:
                file.write(artifact)
                file.flush()
                os.fsync(file.fileno())

        def packed() -> bytes:
            spec = TensorSpec(
                dtype="float32", shape=[4, 1 << 20], data_ptr=_SOURCE.data_ptr(), data_len=16 << 20
            )
            return serialize({"w": spec})

        artifact = packed()
        steps: dict[str, Callable[[], object]] = {
            "learner: one copy into memory that is shared": lambda: held.copy_(_SOURCE),
            "writer: safetensors": packed,
            "writer: XXH3 of tensors": lambda: xxh3_of(artifact),
            "writer: SHA-256": lambda: sha256_of(artifact),
            "writer: file, fsync": write,
            "writer: XXH3, the tag of the file": lambda: xxh3_of(artifact),
            "actor: read": path.read_bytes,
            "actor: XXH3, the tag of the file": lambda: xxh3_of(artifact),
            "actor: SHA-256": lambda: sha256_of(artifact),
            "actor: safetensors": lambda: load(artifact),
            "actor: XXH3 of tensors": lambda: xxh3_of(artifact),
            "actor: copy into the policy": lambda: held.copy_(_SOURCE),
        }
        for name, step in steps.items():
            took, walls = [], []
            for _ in range(12):
                began, at = time.thread_time_ns(), time.perf_counter()
                step()
                took.append((time.thread_time_ns() - began) / 1e6)
                walls.append((time.perf_counter() - at) * 1e3)
            print(f"{name:46} {statistics.median(took):5.1f} ms of CPU, {statistics.median(walls):5.1f} ms")


def _folder(name: str, megabytes: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        publishing = Publishing(run_id=RUN, folder=Path(folder))
        _adoption(name, megabytes, publishing, publishing.place, count)


def _redis(name: str, megabytes: int, count: int) -> None:
    if shutil.which("redis-server") is None:
        print("redis is left out: redis-server is not installed")
        return
    server = RedisServer()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            publishing = Publishing(run_id=RUN, folder=Path(folder), key_url=server.url)
            _adoption(name, megabytes, publishing, publishing.place, count)
    finally:
        server.kill()


def _http(name: str, megabytes: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        publishing = Publishing(run_id=RUN, folder=Path(folder))
        with Server(open_channel(publishing.place), free_port()) as server:
            _adoption(name, megabytes, publishing, Place(url=server.url, run_id=RUN), count)
