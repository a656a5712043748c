"""What requests may cost: memory of the process, bytes on their way in, parts of a body.

Rules: a refusal for want of memory is one that a sender may retry, and comes before a body is read; looking
costs one small read, and only so often. Must not know protocols.
"""

import contextlib
import ctypes
import gc
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from overwatch.cgroup import ControlGroup
from overwatch.collector.setting_types import bounded
from overwatch.platform import machine_memory, resident_file, resident_in

_DEFAULT_MIB: Final = 4096
_OF_GROUP: Final = 0.75
"""Part of a control group's limit that is the process's own: the rest is for the file cache of its writes,
which the group counts too, and for what a thread needs before the next look."""
_OF_MACHINE: Final = 0.5
_BASE_BYTES: Final = 110 << 20
"""What the process takes before it holds anything: measured 95 MiB."""
_OF_STATE: Final = 0.5
"""Part of the rest that runs may have: a checkpoint, decoded bodies and snapshots take theirs."""
_LEAST_STATE: Final = 16 << 20
_OF_QUEUES: Final = 8
"""What waits or is on its way in has at most this part of the limit, whatever is set."""
_RECLAIM_S: Final = 10.0
"""Least time between two attempts to give memory back, in seconds."""


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`receivers.otlp.limits`."""

    max_elements: int = 1 << 19
    """Most messages in one body, whatever its size: each costs many times the bytes it came in."""
    large_body_size: int = 1 << 20
    """Bodies of more bytes than this are decoded one at a time."""
    max_in_flight_mib: int = 64
    """Most MiB of HTTP bodies that are being read; beyond it senders must retry later."""
    max_fold_lag_s: float = 3.0
    """While the fold needs more seconds than this for what waits, senders must retry later."""
    limit_mib: int | None = None
    """Most MiB of memory for the process; 4096, or half of what the machine has, or three quarters of what
    its control group may use, if left out."""
    spike_limit_mib: int | None = None
    """Requests are refused this many MiB below the limit; a fifth of it, if left out."""
    check_interval_s: float = 0.1
    """How long a look at the memory counts, in seconds."""

    def __post_init__(self) -> None:
        bounded(self, "max_elements", "large_body_size", "max_in_flight_mib", "max_fold_lag_s", "limit_mib")
        bounded(self, "check_interval_s", least=0)
        bounded(self, "spike_limit_mib", least=0, most=(self.hard_bytes >> 20) - 1)

    @property
    def hard_bytes(self) -> int:
        """The limit."""
        if self.limit_mib is not None:
            return self.limit_mib << 20
        return min(_DEFAULT_MIB << 20, available_bytes())

    @property
    def soft_bytes(self) -> int:
        """From here on requests are refused, and memory is given back by force."""
        spike = self.spike_limit_mib
        return self.hard_bytes - (self.hard_bytes // 5 if spike is None else spike << 20)

    @property
    def state_bytes(self) -> int:
        """What runs may have of it."""
        return max(_LEAST_STATE, round((self.soft_bytes - _BASE_BYTES) * _OF_STATE))

    def queue_bytes(self, wanted_mib: int) -> int:
        """What a queue in memory may have where so much is set."""
        return min(wanted_mib << 20, self.hard_bytes // _OF_QUEUES)


def available_bytes(root: Path = Path("/")) -> int:
    """What the process may take of the machine's memory, or of its control group's, where that is less."""
    of_machine, group = int(machine_memory() * _OF_MACHINE), ControlGroup(root).memory()
    return of_machine if group is None else min(of_machine, int(group.limit * _OF_GROUP))


class Resident:
    """Memory that this process holds now, also when it can open no file any more."""

    def __init__(self) -> None:
        self._fd = resident_file()
        if self._fd is not None:
            weakref.finalize(self, os.close, self._fd)

    def __call__(self) -> int:
        """Bytes; 0, which limits nothing, where they cannot be read."""
        return resident_in(self._fd) or 0


def reclaim() -> None:
    """Give memory back that nothing uses."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryLimiter:
    """Reports when there is too little memory to take anything in; safe from any thread."""

    def __init__(
        self,
        config: LimitsConfig,
        resident: Callable[[], int] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._soft = config.soft_bytes
        self._interval_s = config.check_interval_s
        self._resident, self._now = resident or Resident(), now
        self._looked_at, self._seen = -float("inf"), 0
        self._reclaimed_at = -float("inf")
        self.reclaims = 0
        """How often memory was given back by force."""

    def problem(self) -> str | None:
        """Why nothing can be taken in; `None` while there is room."""
        now = self._now()
        if now - self._looked_at >= self._interval_s:
            self._looked_at, self._seen = now, self._resident()
            if self._seen > self._soft and now - self._reclaimed_at >= _RECLAIM_S:
                self._reclaimed_at = now
                self.reclaims += 1
                reclaim()
                self._seen = self._resident()
        if self._seen <= self._soft:
            return None
        return (
            f"{self._seen >> 20} MiB of memory are in use; from {self._soft >> 20} MiB on nothing is taken in"
        )


class NoRoomError(Exception):
    """There is no room for more bytes now."""


class Room:
    """Bytes that may be on their way in at once; safe from any thread."""

    def __init__(self, limit: int, of_a_peer: int | None = None) -> None:
        """`of_a_peer` is what one peer may have of it; all, if left out."""
        self._limit = limit
        self._of_a_peer = limit if of_a_peer is None else of_a_peer
        self._lock = threading.Lock()
        self._by_peer = Counter[str]()
        self.taken = 0
        """Bytes held now."""

    def take(self, amount: int, peer: str) -> bool:
        """Hold more bytes; false, and nothing is held, where there is no room for this peer."""
        with self._lock:
            if self.taken + amount > self._limit or self._by_peer[peer] + amount > self._of_a_peer:
                return False
            self.taken += amount
            self._by_peer[peer] += amount
            return True

    def give(self, amount: int, peer: str) -> None:
        """Let go of bytes."""
        with self._lock:
            self.taken -= amount
            self._by_peer[peer] -= amount
            if not self._by_peer[peer]:
                del self._by_peer[peer]

    @contextlib.contextmanager
    def hold(self, peer: str) -> Iterator[Callable[[int], None]]:
        """What one request holds: call it to hold more, or raise `NoRoomError`; the end gives all back."""
        held = 0

        def grow(amount: int) -> None:
            """Take so many bytes more; raise where there is no room."""
            nonlocal held
            if not self.take(amount, peer):
                raise NoRoomError(f"{self.taken >> 20} MiB of requests are on their way in already")
            held += amount

        try:
            yield grow
        finally:
            self.give(held, peer)
