"""How packed values come from a device into host memory, without anybody waiting.

Two ways: values on the CPU are there at once; values on a CUDA device are copied into a pinned slot behind
the work that computes them, and an event shows when they are there. Slots are used again.

Rules: only `Event.query` is asked, never a synchronize. Each call names its device, because a thread that
asks without one would make a context on device 0. A query in the middle of a graph capture would end that
capture, so a capturing thread is not asked for anything, and other threads step out of captures while they
ask; where they cannot (ROCm), only the thread that sent asks. Other kinds of device are refused: no copy of
theirs is known not to wait. Must not know names or runs.
"""

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from overwatch.sdk.packing import Tensor
from overwatch.sdk.values import RefusedError

if TYPE_CHECKING:
    import numpy as np

KEPT_SLOTS: Final = 8
"""Free slots kept of a size and device."""
MIN_SLOT_BYTES: Final = 1024
_THREAD_LOCAL: Final = 1
"""`cudaStreamCaptureModeThreadLocal`."""


class PendingCopy(Protocol):
    """Values on their way into host memory."""

    nbytes: int
    """Bytes of host memory held until `take`."""

    def landed(self) -> bool:
        """Whether they are there; never waits. Raises `RuntimeError` when the device has failed."""
        ...

    def take(self) -> "np.ndarray":
        """The values, one dimension, in memory of their own; only once, and after they have landed."""
        ...


class Transfer(Protocol):
    """A way from one kind of device into host memory."""

    def check(self, index: int) -> None:
        """Raise `RefusedError` when nothing can be sent now from the device of this index."""
        ...

    def send(self, packed: Tensor) -> PendingCopy:
        """Start the copy of a packed tensor, inside `undisturbed`; does not wait for it."""
        ...


class HostValues:
    """Values that are in host memory."""

    def __init__(self, values: "np.ndarray") -> None:
        self._values = values
        self.nbytes = values.nbytes

    def landed(self) -> bool:
        """Always."""
        return True

    def take(self) -> "np.ndarray":
        """The values."""
        return self._values


class Host:
    """From the CPU: the pack is already a copy, and NumPy looks at its memory."""

    def check(self, index: int) -> None:
        """Never refuses."""

    def send(self, packed: Tensor) -> HostValues:
        """The pack's own memory."""
        return HostValues(cast("Any", packed).numpy())


class Pinned:
    """From CUDA devices, through pinned slots that are used again."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[_Slot]] = {}

    def check(self, index: int) -> None:
        """Refuse while the current stream captures a graph."""
        torch: Any = sys.modules["torch"]
        with torch.cuda.device(index):
            if torch.cuda.is_current_stream_capturing():
                raise RefusedError("a value computed while a CUDA graph is captured; report it after replay")

    def send(self, packed: Tensor) -> "_Copy":
        """Queue the copy and its event on the device's current stream."""
        torch: Any = sys.modules["torch"]
        tensor: Any = packed
        index = tensor.get_device()
        nbytes = tensor.numel() * tensor.element_size()
        slot = self._slot(index, nbytes)
        landing = slot.buffer[:nbytes].view(tensor.dtype)
        landing.copy_(tensor, non_blocking=True)
        slot.event.record(torch.cuda.current_stream(index))
        return _Copy(slot, landing.numpy(), self._give_back)

    def _slot(self, index: int, nbytes: int) -> "_Slot":
        size = max(MIN_SLOT_BYTES, 1 << (nbytes - 1).bit_length() if nbytes else 0)
        try:
            return self._free.setdefault((index, size), []).pop()
        except IndexError:
            torch: Any = sys.modules["torch"]
            # A tensor made inside inference mode could not be written to outside of it.
            with torch.inference_mode(False):
                buffer = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
            return _Slot(index, size, buffer, torch.cuda.Event())

    def _give_back(self, slot: "_Slot") -> None:
        free = self._free[slot.index, slot.size]
        if len(free) < KEPT_SLOTS:
            free.append(slot)


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """Pinned host memory, and the event that shows when its copy is complete."""

    index: int
    size: int
    buffer: Any
    event: Any


class _Copy:
    """A copy into a slot."""

    def __init__(self, slot: _Slot, values: "np.ndarray", give_back: Callable[[_Slot], None]) -> None:
        self._slot = slot
        self._values = values
        self._give_back = give_back
        self._sender = threading.get_ident()
        self._has_landed = False
        self.nbytes = slot.size

    def landed(self) -> bool:
        """Whether the event has happened; no for a thread that captures a graph."""
        torch: Any = sys.modules["torch"]
        if self._has_landed:
            return True
        with torch.cuda.device(self._slot.index):
            if not torch.cuda.is_current_stream_capturing():
                with _outside_captures() as outside:
                    if outside or threading.get_ident() == self._sender:
                        self._has_landed = bool(self._slot.event.query())
        return self._has_landed

    def take(self) -> "np.ndarray":
        """A copy of the values; the slot is free again."""
        values = self._values.copy()
        self._give_back(self._slot)
        return values


@contextlib.contextmanager
def _outside_captures() -> Iterator[bool]:
    """While inside, calls of this thread do not end other threads' captures; whether that is so."""
    exchange = _exchange()
    mode = ctypes.c_int(_THREAD_LOCAL)
    outside = exchange is not None and exchange(ctypes.byref(mode)) == 0
    try:
        yield outside
    finally:
        if outside and exchange is not None:
            exchange(ctypes.byref(mode))


@functools.cache
def _exchange() -> "Callable[[object], int] | None":
    """CUDA's `cudaThreadExchangeStreamCaptureMode`, where it can be found; torch has no name for it.

    HIP's is not taken: there a query ends another thread's capture in every mode.
    """
    version = getattr(sys.modules["torch"].version, "cuda", None)
    if not version:
        return None
    for library, prefix in ((f"libcudart.so.{version.partition('.')[0]}", "cuda"), ("libcuda.so.1", "cu")):
        with contextlib.suppress(OSError, AttributeError):
            exchange = getattr(ctypes.CDLL(library), f"{prefix}ThreadExchangeStreamCaptureMode")
            return cast("Callable[[object], int]", exchange)
    return None
