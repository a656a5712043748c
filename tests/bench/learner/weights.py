"""Publishing 16 MB: what it costs the trainer's thread, beside one memcpy, and when an actor acts with it.

The cost is CPU of the thread in `publish` and `finished`, the memcpy that of one flat copy of the same bytes
into memory that was used before; turns alternate. Adoption is wall time from `publish` until the actor has
loaded the version, both in this process, so it includes signing, files and the disk; CPU of the writer's
process, and of this one while it reads and verifies (with the learner's server, where that is asked), is
beside it and does not depend on the machine's load.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil
import torch

from overwatch_rl.artifacts.signing import Verifier
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import Place, open_channel
from overwatch_rl.weights.manifest import Accepted
from overwatch_rl.weights.publisher import Publisher, Publishing
from overwatch_rl.weights.subscriber import Subscriber
from tests.bench.sdk.stats import quantile
from tests.overwatch_rl.servers import RedisServer
from tests.overwatch_rl.weights.serving import Server
from tests.ports import free_port

BAR: Final = 1.5
SHAPES: Final = [(1024, 1024), (1024,), (1024, 1024), (1024,), (512, 1024), (512,), (1024, 1024), (1024, 512)]
RUN: Final = "bench"


def section(*, quick: bool) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    held = {f"layer.{number}": torch.randn(shape) for number, shape in enumerate(SHAPES)}
    size = sum(tensor.numel() * 4 for tensor in held.values())
    print(f"{size / 2**20:.1f} MiB in {len(held)} tensors")
    _cost(held, size, 10 if quick else 60)
    for name, start in (("folder", _folder), ("redis", _redis), ("http", _http)):
        start(name, held, 8 if quick else 40)


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


def _adoption(
    name: str, held: dict[str, torch.Tensor], publishing: Publishing, place: Place, count: int
) -> None:
    publisher = Publisher(publishing)
    accepted = Accepted(run_id=RUN, verifier=Verifier(publisher.public))
    subscriber = Subscriber(open_channel(place), accepted)
    whole, own, theirs = [], [], 0.0
    for number in range(count):
        began = time.perf_counter()
        publisher.publish(Version(1, number), held)
        while True:
            looked = time.process_time()
            if subscriber.poll() is not None:
                break
        ended = time.perf_counter()
        whole.append((ended - began) * 1e3)
        own.append((time.process_time() - looked) * 1e3)
        publisher.finished(60.0)
        if not number and publisher._sender is not None:
            writer = psutil.Process(publisher._sender.pid)
            theirs = -sum(writer.cpu_times()[:2])
    theirs = (theirs + sum(writer.cpu_times()[:2])) / (count - 1) * 1e3
    publisher.close()
    print(
        f"adopted by way of {name:7} {quantile(whole, 0.5):6.1f} ms, p99 {quantile(whole, 0.99):6.1f} ms; "
        f"CPU of the writer {theirs:5.1f} ms, of the actor {quantile(own, 0.5):5.1f} ms"
    )


def _folder(name: str, held: dict[str, torch.Tensor], count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        publishing = Publishing(run_id=RUN, folder=Path(folder))
        _adoption(name, held, publishing, publishing.place, count)


def _redis(name: str, held: dict[str, torch.Tensor], count: int) -> None:
    if shutil.which("redis-server") is None:
        print("redis is left out: redis-server is not installed")
        return
    server = RedisServer()
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            publishing = Publishing(run_id=RUN, folder=Path(folder), key_url=server.url)
            _adoption(name, held, publishing, publishing.place, count)
    finally:
        server.kill()


def _http(name: str, held: dict[str, torch.Tensor], count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        publishing = Publishing(run_id=RUN, folder=Path(folder))
        with Server(open_channel(publishing.place), free_port()) as server:
            _adoption(name, held, publishing, Place(url=server.url, run_id=RUN), count)
