"""A checkpoint of 48 MiB: what a save costs the trainer's thread, beside one memcpy and PyTorch's async save.

The cost is CPU of the thread in `save`, and in the call that takes in what became of it; the memcpy is that
of one flat copy of the same bytes into memory that was used before; `torch.distributed.checkpoint.async_save`
is measured in the same way, without a process group. Each round does all three, in turns, with steps of
training between and nothing under way; afterwards it waits until both are written.
"""

import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed.checkpoint as dcp

from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.store import Retention
from tests.bench.sdk.stats import quantile

BARS: Final = {"memcpy": 1.3, "async_save": 0.5}
LAYERS: Final = 4
WARM: Final = 4
"""Rounds that meet new memory."""


def _tensors() -> dict[str, torch.Tensor]:
    """Weights and the two moments of Adam."""
    made = {}
    for part in ("policy", "optimizer.first", "optimizer.second"):
        for layer in range(LAYERS):
            made[f"{part}.{layer}.weight"] = torch.randn(1024, 1024)
            made[f"{part}.{layer}.bias"] = torch.randn(1024)
    return made


class _Round:
    """What is saved, each way, and the milliseconds of each."""

    def __init__(self, folder: Path) -> None:
        self.tensors = _tensors()
        self.size = sum(one.nbytes for one in self.tensors.values())
        self.source, self.target = torch.randn(self.size // 4), torch.empty(self.size // 4)
        self.manager = Manager(folder / "ours", Retention(keep=1))
        self.folder = folder / "theirs"
        self.ours: list[float] = []
        self.memcpy: list[float] = []
        self.theirs: list[float] = []
        self.walls: list[float] = []
        self._pending: Any = None
        self._layer = torch.nn.Linear(256, 256)

    def train(self) -> None:
        """A few steps, so that caches hold what training leaves there."""
        for _ in range(5):
            self._layer(torch.randn(256, 256)).square().mean().backward()

    def save_ours(self, updates: int) -> None:
        """As the trainer does."""
        state = State(
            run_id="bench", lineage=1, updates=updates, steps=updates, plan={}, config={}, config_hash=""
        )
        tensors = {f"{name.partition('.')[0]}.safetensors:{name}": one for name, one in self.tensors.items()}
        wall, began = time.perf_counter(), time.thread_time_ns()
        done = self.manager.save(state, tensors)
        taken = time.thread_time_ns() - began
        self.walls.append((time.perf_counter() - wall) * 1e3)
        assert not done
        began = time.thread_time_ns()
        (written,) = self.manager.finished(600.0)
        assert written.error is None, written.error
        self.ours.append((taken + time.thread_time_ns() - began) / 1e6)

    def copy(self, _: int) -> None:
        """One memcpy."""
        began = time.thread_time_ns()
        self.target.copy_(self.source)
        self.memcpy.append((time.thread_time_ns() - began) / 1e6)

    def save_theirs(self, _: int) -> None:
        """PyTorch's, in its thread."""
        shutil.rmtree(self.folder, ignore_errors=True)
        began = time.thread_time_ns()
        future: Any = dcp.async_save(self.tensors, checkpoint_id=str(self.folder))  # type: ignore[attr-defined]
        self.theirs.append((time.thread_time_ns() - began) / 1e6)
        future.result()


def section(*, quick: bool) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    rounds = 8 if quick else 40
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = _Round(Path(folder))
        ways: list[Callable[[int], None]] = [one.save_ours, one.copy, one.save_theirs]
        for number in range(rounds + WARM):
            for turn in range(len(ways)):
                one.train()
                ways[(number + turn) % len(ways)](number)
        one.manager.close(None, {})
    ours, memcpy, theirs = (found[WARM:] for found in (one.ours, one.memcpy, one.theirs))
    size, count = one.size / 2**20, len(one.tensors)
    print(f"{size:.0f} MiB in {count} tensors, {rounds} rounds, torch {torch.__version__}")
    print(
        f"trainer's thread: {statistics.median(ours):.1f} ms of CPU (wall p99 "
        f"{quantile(one.walls[WARM:], 0.99):.1f} ms), one memcpy {statistics.median(memcpy):.1f} ms, "
        f"torch.distributed.checkpoint.async_save {statistics.median(theirs):.1f} ms"
    )
    for name, other in (("memcpy", memcpy), ("async_save", theirs)):
        ratios = sorted(mine / its for mine, its in zip(ours, other, strict=True))
        ratio, bar = statistics.median(ratios), BARS[name]
        verdict = "met" if ratio <= bar else "NOT MET"
        print(f"to {name}: ratio {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), bar {bar}: {verdict}")
