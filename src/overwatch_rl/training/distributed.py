"""The other processes that train the same policy: reductions over torch.distributed, started by torchrun.

Owns the process group, and what follows from a rank's place: its device and its seed. Rules: every rank makes
the same calls in the same order; reductions of numbers stay on the device; a stop of one rank ends all of
them after the same rollout, so that none waits for one that has left. Ranks bring equally many rows. Must not
know algorithms, worlds or telemetry.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from overwatch_rl.algorithms.common import Alone, Ranks

WAIT: Final = timedelta(minutes=10)
"""How long a rank waits for the others before it fails."""
_APART: Final = 1_000_003
"""Between the seeds of two ranks."""
_VARIABLES: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which of the processes this one is."""

    rank: int = 0
    local_rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that prints and writes."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """Its own device of that kind, where a machine has several."""
        return f"cuda:{self.local_rank}" if name == "cuda" and self.size > 1 else name

    def seed(self, seed: int) -> int:
        """The seed of what differs between ranks: worlds and drawn actions."""
        return seed + self.rank * _APART


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """From torchrun's variables; alone without them. Raises `ValueError` when one is missing or wrong."""
    if environment.get("WORLD_SIZE", "1") == "1":
        return Place()
    missing = [name for name in _VARIABLES if name not in environment]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']} and {', '.join(missing)} is not set; "
            "start with torchrun"
        )
    numbers = {name: environment[name] for name in _VARIABLES[:3]}
    wrong = [name for name, value in numbers.items() if not value.isdecimal()]
    if wrong:
        raise ValueError(f"{wrong[0]} is {numbers[wrong[0]]!r}; use a whole number, or start with torchrun")
    rank, local_rank, size = (int(value) for value in numbers.values())
    if rank >= size:
        raise ValueError(f"RANK is {rank} of {size} processes; use 0 to {size - 1}")
    return Place(rank=rank, local_rank=local_rank, size=size)


class Joined:
    """All ranks of the process group."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._waited_s = 0.0

    def waited_s(self) -> float:
        """Seconds that this process waited for the others since the last call, their exchange included.

        On CUDA only what the host waits for: the device does its part of a reduction later.
        """
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._waited_s += time.perf_counter() - began

    def first_of(self, answer: str | None) -> str | None:
        """The answer of the first rank that has one."""
        answers: list[str | None] = [None] * self.size
        with self._waiting():
            dist.all_gather_object(answers, answer)
        return next((one for one in answers if one is not None), None)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks."""
        total = values.detach().clone()
        with self._waiting():
            dist.all_reduce(total)
        return total

    def any(self, flag: Tensor) -> Tensor:
        """Bool scalar: whether it is true on any rank."""
        found = flag.to(torch.int32)
        with self._waiting():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return found > 0

    @torch.no_grad()
    def average(self, tensors: list[Tensor]) -> None:
        """The mean over ranks, of all tensors in one reduction a dtype."""
        for group in _by_dtype(tensors):
            flat = _flat(group)
            with self._waiting():
                dist.all_reduce(flat)
            _spread(flat.div_(self.size), group)

    @torch.no_grad()
    def share(self, tensors: list[Tensor]) -> None:
        """Those of the first rank, in one broadcast a dtype."""
        for group in _by_dtype(tensors):
            flat = _flat(group)
            with self._waiting():
                dist.broadcast(flat, src=0)
            _spread(flat, group)


def _by_dtype(tensors: list[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for one in tensors:
        groups.setdefault(one.dtype, []).append(one)
    return list(groups.values())


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([one.reshape(-1) for one in tensors])


def _spread(flat: Tensor, tensors: list[Tensor]) -> None:
    for part, one in zip(torch.split(flat, [one.numel() for one in tensors]), tensors, strict=True):
        one.copy_(part.view(one.shape))


@contextlib.contextmanager
def joined(here: Place, device: str) -> Iterator[Ranks]:
    """The ranks of this run: NCCL where they train on CUDA, else gloo."""
    if here.size == 1:
        yield Alone()
        return
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if is_cuda else "gloo", timeout=WAIT)
    try:
        yield Joined(here.size)
    finally:
        dist.destroy_process_group()


def together(ranks: Ranks, stop: Callable[[], str | None], steps: int) -> Callable[[], str | None]:
    """`stop` for all ranks: called after each step, answered alike after each rollout of `steps`.

    A rank that was asked to stop in the middle of a rollout ends with the others at its end.
    """
    if not isinstance(ranks, Joined):
        return stop
    requested = 0

    def outcome() -> str | None:
        nonlocal requested
        requested += 1
        if requested % steps:
            return None
        return ranks.first_of(stop())

    return outcome
