"""Device values: numbers that are still being computed, given to the run when they are there.

Owns what waits, in the order it was offered, and the thread that delivers it. Rules: an offer is copied in
the caller's thread and delivered in the thread of this module, whatever device its values are on; what has
no tensor is delivered at once, unless something offered before still waits. Nothing waits for a device; an
offer ends in exactly one call: of its `then`, or of `on_drop` with a reason. Nothing here may be called by
a garbage collector's finaliser. Must not know frames or the catalogue.
"""

import contextlib
import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from overwatch.sdk.packing import ERRORS, Refuse, Shape, Tensor, is_tensor, pack, undisturbed
from overwatch.sdk.transfer import Host, PendingCopy, Pinned, Transfer
from overwatch.sdk.values import RefusedError

if TYPE_CHECKING:
    import numpy as np

BACKLOG: Final = "device_backlog"
"""More waited than may wait."""
PENDING: Final = "device_pending"
"""The run ended before the values were there."""
FAILED: Final = "device_failed"
"""The device, or the receiver, raised an error."""

_RETRY_S: Final = 0.002
_OVERDUE_S: Final = 0.1
"""What has waited for so long is asked for by the thread that sent it, too."""

Then: TypeAlias = "Callable[[dict[str, np.ndarray]], Callable[[], bool] | None]"
"""Receives what came, once; what it returns is called until it is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """What may wait for a device and how often it is looked at."""

    offers: int = 4096
    """Offers that wait; one more is dropped."""
    waiting_bytes: int = 64 << 20
    """Host memory of what waits, of tables and of all else apart; an offer that would exceed it is dropped,
    unless it is the only one of them."""
    period_s: float = 0.02
    """Between two looks of the thread."""
    linger_s: float = 5.0
    """How long the thread lives on with nothing to wait for."""


class _Part(msgspec.Struct, frozen=True):
    """Values of some names on one way."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    pending: PendingCopy


@dataclass(slots=True, eq=False)
class _Offer:
    parts: Sequence[_Part]
    names: tuple[str, ...]
    then: Then
    nbytes: int
    """Of host memory held."""
    is_table: bool
    since: float = field(default_factory=time.monotonic)
    """When it was made, monotonic seconds."""
    go_on: Callable[[], bool] | None = None

    def landed(self) -> bool:
        """Whether all of it is there."""
        return all(part.pending.landed() for part in self.parts)

    def deliver(self) -> bool:
        """Give what came to its receiver; false where that has to be called again to be done whole."""
        if self.go_on is None:
            self.go_on = self.then(_arrays(self.parts, self.names)) or (lambda: True)
        return self.go_on()


class DeviceValues:
    """A run's values on their way from devices. Safe from any thread and from a signal handler.

    `on_drop` receives the reason of every offer that does not arrive; `on_refuse` the name of every single
    value that cannot be taken, and why: the rest of its offer goes on without it.
    """

    def __init__(
        self,
        on_drop: Callable[[str], None],
        on_refuse: Refuse,
        limits: DeviceLimits | None = None,
        transfers: Mapping[str, Transfer] | None = None,
    ) -> None:
        self._on_drop = on_drop
        self._on_refuse = on_refuse
        self._limits = limits or DeviceLimits()
        own: Mapping[str, Transfer] = {"cpu": Host(), "cuda": Pinned()}
        self._transfers = own if transfers is None else transfers
        self._waiting: deque[_Offer] = deque()
        self._held = [0, 0]
        """Bytes of what waits, of numbers and of tables; only ever a bound."""
        self._turn = threading.Lock()
        """Held by the one thread that delivers."""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._over = threading.Event()
        """Nothing more is taken."""
        self._ended = False
        """What waited has been dropped."""
        self._is_alone = False
        """No thread can be started: calls of the run deliver."""

    @property
    def waiting(self) -> int:
        """Offers that are not yet delivered; a hint, because other threads move them."""
        return len(self._waiting)

    @property
    def line(self) -> Sized:
        """What waits, as it changes: empty while nothing does. In a forked child it is the parent's."""
        return self._waiting

    def offer(self, values: Mapping[str, Tensor | float], then: Callable[[dict[str, float]], None]) -> None:
        """Numbers by name, each a float or a tensor of one element; `then` receives all that were taken.

        A later change of a tensor is not seen. `then` runs in the drain thread.
        """
        names = tuple(values)
        tensors = {name: value for name, value in values.items() if is_tensor(value)}
        plain = {name: cast("float", value) for name, value in values.items() if name not in tensors}

        def arrived(arrays: "dict[str, np.ndarray]") -> None:
            """Hand over all numbers in the order in which they were given."""
            found = plain | {name: float(array.item()) for name, array in arrays.items()}
            then({name: found[name] for name in names if name in found})

        self.offer_arrays(tensors, Shape.SCALARS, arrived)

    def offer_arrays(self, values: Mapping[str, Tensor], shape: Shape, then: Then, *, held: int = 0) -> None:
        """Arrays by name, each a tensor of this shape; `held` is what `then` itself holds, in bytes.

        The arrays have one dimension, keep their dtype (bfloat16 and the 8-bit floats arrive as float32) and
        are the receiver's. What `then` returns is called again where it had no room to go on.
        """
        is_table = shape is Shape.TABLES
        reason = self._no_room(values, held, is_table=is_table)
        if reason is not None:
            self._on_drop(reason)
            return
        parts = self._send(values, shape)
        nbytes = held + sum(part.pending.nbytes for part in parts)
        self._held[is_table] += nbytes
        self._waiting.append(_Offer(parts, tuple(values), then, nbytes, is_table))
        if self._ended:
            self._sweep()
        elif not parts and not held and len(self._waiting) == 1:
            self.poll()
        elif self._thread is None:
            self._start()
            if self._is_alone:
                self.poll()

    def look(self) -> None:
        """Do in a thread that sent what no other can: ask for its copies, or deliver where no thread is."""
        if not self._waiting:
            return
        if self._is_alone:
            self.poll()
        elif self._turn.acquire(blocking=False):
            overdue = time.monotonic() - _OVERDUE_S
            try:
                for offer in tuple(self._waiting):
                    if offer.since > overdue or not offer.landed():
                        break
            except Exception:  # noqa: BLE001, S110 the thread that delivers finds it too, and counts it
                pass
            finally:
                self._turn.release()

    def poll(self) -> None:
        """Deliver what is there, in order, in this thread."""
        while self._waiting and self._take_turn(0.0) is False:
            pass

    def drain(self, timeout_s: float) -> None:
        """The end: deliver what comes within the timeout, count the rest; later offers are dropped."""
        self._over.set()
        self.settle(timeout_s)
        self._ended = True
        self._sweep()

    def settle(self, timeout_s: float) -> None:
        """Deliver what comes within the timeout."""
        deadline = time.monotonic() + max(timeout_s, 0.0)
        while self._take_turn(max(deadline - time.monotonic(), 0.0)):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(_RETRY_S, left))

    def _take_turn(self, timeout_s: float) -> bool | None:
        """Deliver; whether something is not there yet, `None` where another thread delivers all that time."""
        if not self._turn.acquire(timeout=timeout_s):
            return None
        try:
            return self._deliver()
        finally:
            self._turn.release()

    def abandon(self) -> None:
        """In a forked child: what waits is the parent's, and CUDA must not be touched, not even to free."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._waiting, self._transfers)))
        self._waiting = deque()
        self._transfers = {}
        self._on_drop = lambda _: None  # the parent counts
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._over = threading.Event()
        self._over.set()
        self._ended = True
        self._thread = None

    def _no_room(self, tensors: Mapping[str, Tensor], more: int, *, is_table: bool) -> str | None:
        """Why one more offer may not wait; `None` where it may."""
        if self._over.is_set():
            return PENDING
        if not self._waiting:
            self._held = [0, 0]
        elif len(self._waiting) >= self._limits.offers:
            return BACKLOG
        elif held := self._held[is_table]:
            with undisturbed() if tensors else contextlib.nullcontext():
                more += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
            return BACKLOG if held + more > self._limits.waiting_bytes else None
        return None

    def _send(self, tensors: Mapping[str, Tensor], shape: Shape) -> list[_Part]:
        """Pack tensors and send the packs off; what cannot be sent is refused."""
        parts: list[_Part] = []
        if not tensors:
            return parts
        with undisturbed():
            for one in pack(tensors, shape, self._check, self._on_refuse):
                try:
                    parts.append(_Part(one.names, one.rows, self._transfers[one.kind].send(one.packed)))
                except ERRORS as error:
                    why = RefusedError(f"a copy from {one.kind} could not start: {error}")
                    for name in one.names:
                        self._on_refuse(name, why)
        return parts

    def _check(self, kind: str, index: int) -> None:
        if kind == "meta":
            raise RefusedError("a tensor on meta has no value")
        way = self._transfers.get(kind)
        if way is None:
            raise RefusedError(f"a value on {kind} would make training wait; pass it after `.cpu()`")
        way.check(index)

    def _deliver(self) -> bool:
        """Deliver from the front; whether the first that waits is not there yet."""
        while (offer := self._next()) is not None:
            try:
                if not offer.landed() or not offer.deliver():
                    self._waiting.appendleft(offer)
                    return True
            except Exception:  # noqa: BLE001 the border: counted, and the next one has its turn
                self._on_drop(FAILED)
            self._held[offer.is_table] -= offer.nbytes
        return False

    def _next(self) -> _Offer | None:
        """The first that waits, from now on this thread's to deliver, put back or drop."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _sweep(self) -> None:
        while self._next() is not None:
            self._on_drop(PENDING)

    def _start(self) -> None:
        """Have a thread look after what waits; without one (the interpreter ends) calls of the run do."""
        if self._thread is not None or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                self._thread = threading.Thread(target=self._tend, name="overwatch-device", daemon=True)
                self._thread.start()
                self._is_alone = False
        except RuntimeError:
            self._thread, self._is_alone = None, True
        finally:
            self._starting.release()

    def _tend(self) -> None:
        idle_s = 0.0
        while idle_s <= self._limits.linger_s and not self._over.wait(self._limits.period_s):
            self.poll()
            idle_s = 0.0 if self._waiting else idle_s + self._limits.period_s
        self._thread = None
        if self._waiting and not self._over.is_set():
            self._start()


def _arrays(parts: Sequence[_Part], names: Sequence[str]) -> "dict[str, np.ndarray]":
    """What has landed, by name in this order."""
    found: dict[str, np.ndarray] = {}
    for part in parts:
        whole = part.pending.take()
        ends = accumulate(part.rows)
        found.update(
            (name, whole[end - rows : end])
            for name, rows, end in zip(part.names, part.rows, ends, strict=True)
        )
    return {name: found[name] for name in names if name in found}
