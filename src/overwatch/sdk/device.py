"""Device values: numbers that are still being computed, told to the run when they are there.

Owns what waits, in the order it was offered, and the thread that delivers it. Rules: an offer is copied in
the caller's thread and delivered in the thread of this module, whatever device its values are on; what has
no tensor is delivered at once, unless something offered before still waits. Nothing waits for a device; an
offer ends in exactly one call: of its `then`, or of `on_drop` with a reason. Nothing here may be called by
a garbage collector's finaliser. Must not know frames or the catalogue.
"""

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec

from overwatch.sdk.packing import ERRORS, Refuse, Shape, Tensor, pack, tensor_type, undisturbed
from overwatch.sdk.transfer import PendingCopy, Transfer, ways
from overwatch.sdk.values import RefusedError

if TYPE_CHECKING:
    import numpy as np

BACKLOG: Final = "device_backlog"
"""More waited than may wait."""
PENDING: Final = "device_pending"
"""The run ended before the values were there."""
FAILED: Final = "device_failed"
"""The device, or whoever was told, raised an error."""

_RETRY_S: Final = 0.002
_NUMBERS, _TABLES = range(2)
_OVERDUE_S: Final = 0.1
"""What has waited for so long is asked for by the thread that sent it, too."""

Then: TypeAlias = "Callable[[dict[str, float]], None]"
ThenColumns: TypeAlias = "Callable[[dict[str, np.ndarray]], None]"
ThenTables: TypeAlias = "Callable[[dict[str, np.ndarray]], Callable[[], bool]]"
"""Is given what came, once; what it returns is called until it is true."""


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

    def __post_init__(self) -> None:
        if self.offers < 1 or self.waiting_bytes < 0 or self.period_s <= 0 or self.linger_s < 0:
            raise ValueError(f"device values wait in at least one place and are looked at: {self}")


class _NoTensor:
    """What a tensor is before torch is loaded."""


class _Part(msgspec.Struct, frozen=True):
    """Values of some names on one way."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    pending: PendingCopy


class _Offer(msgspec.Struct, frozen=True):
    parts: Sequence[_Part]
    deliver: Callable[[], object]
    """False where it could not be done whole, and has to be called again."""
    nbytes: int
    """Of host memory held."""
    since: float
    """When it was made, monotonic seconds."""
    line: int
    """`_NUMBERS` or `_TABLES`."""

    def landed(self) -> bool:
        """Whether all of it is there."""
        return all(part.pending.landed() for part in self.parts)


class DeviceValues:
    """A run's values on their way from devices. Safe from any thread and from a signal handler.

    `on_drop` is told the reason of every offer that does not arrive; `on_refuse` the name of every single
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
        self._transfers = ways() if transfers is None else transfers
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

    def offer(self, values: Mapping[str, Tensor | float], then: Then) -> None:
        """Numbers by name, each a float or a tensor of one element; `then` is told all that were taken.

        A later change of a tensor is not seen. `then` runs in the drain thread.
        """
        names = tuple(values)
        kind = tensor_type() or _NoTensor
        tensors = {n: cast("Tensor", v) for n, v in values.items() if issubclass(type(v), kind)}
        told = {n: cast("float", v) for n, v in values.items() if n not in tensors}
        if not self._has_room(tensors):
            return
        parts = self._send(tensors, Shape.SCALARS)

        def deliver() -> None:
            for part in parts:
                told.update(zip(part.names, part.pending.take().astype("f8").tolist(), strict=True))
            then({name: told[name] for name in names if name in told})

        self._wait_for(parts, deliver)

    def offer_columns(self, values: Mapping[str, Tensor], then: ThenColumns) -> None:
        """Columns by name, each a tensor of one dimension, or of none for a column of one row.

        The arrays keep their dtype (bfloat16 and the 8-bit floats arrive as float32) and are the receiver's.
        """
        if not self._has_room(values):
            return
        names = tuple(values)
        parts = self._send(values, Shape.COLUMNS)
        self._wait_for(parts, lambda: then(_arrays(parts, names)))

    def offer_tables(self, values: Mapping[str, Tensor], then: ThenTables, *, held: int = 0) -> None:
        """Tensors of any dimensions, each as a flat array; `held` is what `then` itself holds, in bytes.

        What `then` returns is called again where it had no room to go on.
        """
        if not self._has_room(values, held, _TABLES):
            return
        parts = self._send(values, Shape.TABLES)
        go_on: Callable[[], bool] | None = None

        def deliver() -> bool:
            nonlocal go_on
            if go_on is None:
                go_on = then(_arrays(parts, tuple(values)))
            return go_on()

        self._wait_for(parts, deliver, held, _TABLES)

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
        while self._waiting and self._turn.acquire(blocking=False):
            try:
                is_blocked = self._deliver()
            finally:
                self._turn.release()
            if is_blocked:
                return

    def drain(self, timeout_s: float) -> None:
        """The end: deliver what comes within the timeout, count the rest; later offers are dropped."""
        self._over.set()
        self.settle(timeout_s)
        self._ended = True
        self._sweep()

    def settle(self, timeout_s: float) -> None:
        """Deliver what comes within the timeout."""
        deadline = time.monotonic() + max(timeout_s, 0.0)
        while self._turn.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            try:
                is_blocked = self._deliver()
            finally:
                self._turn.release()
            left = deadline - time.monotonic()
            if not is_blocked or left <= 0:
                break
            time.sleep(min(_RETRY_S, left))

    def abandon(self) -> None:
        """In a forked child: what waits is the parent's, and CUDA must not be touched, not even to free."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._waiting, self._transfers)))
        self._waiting = deque()
        self._transfers = {}
        self._on_drop = _ignore
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._over = threading.Event()
        self._over.set()
        self._ended = True
        self._thread = None

    def _has_room(self, tensors: Mapping[str, Tensor], more: int = 0, line: int = _NUMBERS) -> bool:
        """Whether one more offer may wait; if not, it is dropped here."""
        reason = None
        if self._over.is_set():
            reason = PENDING
        elif self._waiting:
            held = self._held[line]
            too_many = len(self._waiting) >= self._limits.offers
            if too_many or (held and held + more + _nbytes(tensors.values()) > self._limits.waiting_bytes):
                reason = BACKLOG
        else:
            self._held = [0, 0]
        if reason is not None:
            self._on_drop(reason)
        return reason is None

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

    def _wait_for(
        self, parts: Sequence[_Part], deliver: Callable[[], object], held: int = 0, line: int = _NUMBERS
    ) -> None:
        nbytes = held + sum(part.pending.nbytes for part in parts)
        self._held[line] += nbytes
        self._waiting.append(_Offer(parts, deliver, nbytes, time.monotonic(), line))
        if self._ended:
            self._sweep()
        elif not parts and not held and len(self._waiting) == 1:
            self.poll()
        elif self._thread is None:
            self._start()
            if self._is_alone:
                self.poll()

    def _deliver(self) -> bool:
        """Deliver from the front; whether the first that waits is not there yet."""
        while (offer := self._next()) is not None:
            try:
                if not offer.landed() or offer.deliver() is False:
                    self._waiting.appendleft(offer)
                    return True
            except Exception:  # noqa: BLE001 the border: counted, and the next one has its turn
                self._on_drop(FAILED)
            self._held[offer.line] -= offer.nbytes
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


def _nbytes(tensors: Collection[Tensor]) -> int:
    if not tensors:
        return 0
    with undisturbed():
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _ignore(_: str) -> None:
    """The parent counts."""
