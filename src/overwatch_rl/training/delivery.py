"""Brings the statistics of updates from the device to the host; the training thread does not wait.

Owns the copies under way. On a GPU a packed copy goes into pinned memory behind an event, and is read when
the device has passed it, at most two updates later; on a CPU the numbers are there already. On tensors
without values nothing is delivered. Must not know what the numbers mean.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.sync_points import sync_point
from overwatch_rl.undefined import UNDEFINED

MOST_LATE: Final = 2
"""Updates by which numbers may be late before the thread waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The numbers of one update; those that are undefined are left out."""

    index: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    index: int
    names: tuple[str, ...]
    packed: Tensor
    event: torch.cuda.Event | None
    host: Mapping[str, float]


class Delivery:
    """First in, first out."""

    def __init__(self) -> None:
        self._under_way: deque[_UnderWay] = deque()

    def send(self, index: int, stats: Mapping[str, Tensor], host: Mapping[str, float]) -> None:
        """Begin to bring the statistics of an update; `host` has numbers that are there already."""
        names = tuple(stats)
        packed = torch.stack([stats[name].detach().to(torch.float64) for name in names])
        if packed.is_meta:
            return
        event = None
        if packed.is_cuda:
            pinned = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
            pinned.copy_(packed, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # theirs
            event.record()
            packed = pinned
        self._under_way.append(_UnderWay(index, names, packed, event, host))

    def arrived(self) -> list[Delivered]:
        """What has come since the last call, in order."""
        found = []
        while self._under_way:
            first = self._under_way[0]
            is_late = len(self._under_way) > MOST_LATE
            if first.event is not None and not is_late and not first.event.query():  # type: ignore[no-untyped-call]
                break
            found.append(self._take())
        return found

    def rest(self) -> list[Delivered]:
        """All that is under way; waits for it."""
        return [self._take() for _ in range(len(self._under_way))]

    def _take(self) -> Delivered:
        first = self._under_way.popleft()
        with sync_point("trainer.delivery"):
            if first.event is not None:
                first.event.synchronize()
            both = zip(first.names, first.packed.tolist(), strict=True)
            values = {name: value for name, value in both if value != UNDEFINED}
        return Delivered(index=first.index, values=values | dict(first.host))
