"""A look at one GPU through a vendor's package, reading by reading.

Rules: a reading that the GPU does not have is left out; one that cannot be read has its reason, and takes no
other with it, whatever a call raises. Must not know vendors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from overwatch.sdk.exporter.unread import Unread


class GoneError(Exception):
    """The GPU or its driver is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """What a vendor's errors mean."""

    of: Callable[[Exception], object]
    """The code of an error; `None` where it has none."""
    gone: frozenset[int]
    """After which nothing of a GPU can be read."""
    unknown: frozenset[int]
    """The GPU has no such reading, which is no trouble."""


class Looking:
    """What looks at GPUs of all vendors share."""

    def __init__(self, uuid: str, codes: Codes, unread: Unread) -> None:
        self._uuid, self._codes, self._unread = uuid, codes, unread

    @property
    def name(self) -> str:
        """The GPU's UUID."""
        return self._uuid

    def note(self, numbers: dict[str, float], name: str, ask: Callable[[], float | None]) -> None:
        """Ask for one number; raises `GoneError` when the GPU or its driver is gone."""

        def keep() -> None:
            value = ask()
            if value is not None and math.isfinite(value):
                numbers[name] = value

        self.guarded(name, keep)

    def guarded(self, what: str, ask: Callable[[], None]) -> None:
        """Ask for one reading, which is left out where the call raises; raises `GoneError`."""
        try:
            ask()
        except Exception as error:  # noqa: BLE001 the border: a driver may do anything
            code = self._codes.of(error)
            if code in self._codes.gone:
                raise GoneError from None
            if code not in self._codes.unknown:
                self._unread.note(f"{what} of {self._uuid}", error)
