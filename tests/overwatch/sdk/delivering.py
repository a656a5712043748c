"""What device values deliver, as the tests of them see it."""

import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from overwatch.sdk.device import DeviceLimits, DeviceValues
from overwatch.sdk.packing import Shape, Tensor
from overwatch.sdk.transfer import Host, PendingCopy
from overwatch.sdk.values import RefusedError

DEADLINE_S = 20.0
FAST = DeviceLimits(period_s=0.01, linger_s=0.05)


class HandHeld:
    """A device whose copies land when the test states it."""

    def __init__(self) -> None:
        self.is_open = False
        self.error: RuntimeError | None = None

    def check(self, index: int) -> None:
        """Never refuses."""

    def send(self, packed: Tensor) -> PendingCopy:
        """Copied, but not there yet."""
        return _Held(self, Host().send(packed).take())


class _Held:
    def __init__(self, device: HandHeld, values: np.ndarray) -> None:
        self._device = device
        self._values = values
        self.nbytes = values.nbytes

    def landed(self) -> bool:
        if self._device.error is not None:
            raise self._device.error
        return self._device.is_open

    def take(self) -> np.ndarray:
        return self._values


class Received:
    """Device values and everything they report."""

    def __init__(self, device: HandHeld | None = None, limits: DeviceLimits | None = None) -> None:
        self.reported: list[object] = []
        self.drops: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self.device = device
        self.values = DeviceValues(
            self._drop, self._refuse, limits, None if device is None else {"cpu": device}
        )

    def _drop(self, reason: str) -> None:
        self.drops[reason] += 1

    def _refuse(self, name: str, error: RefusedError) -> None:
        self.refused[name] = str(error)

    def offer(self, **values: Tensor | float) -> None:
        """Offer numbers, and wait for those that no device holds back."""
        self.values.offer(values, self.reported.append)
        self._settle()

    def columns(self, **values: Tensor) -> None:
        """Offer columns, and wait as above."""
        self.values.offer_arrays(values, Shape.COLUMNS, self.reported.append)
        self._settle()

    def _settle(self) -> None:
        if self.device is None:
            self.values.settle(DEADLINE_S)


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    return is_so()


def drain_threads() -> list[threading.Thread]:
    """Threads that look after device values."""
    return [thread for thread in threading.enumerate() if thread.name == "overwatch-device"]
