"""What a look at GPUs gives, who can look, and why something cannot be read.

Rules: a reading that a GPU does not have is left out; one that cannot be read has its reason and a fix, once,
for the log and for the run's feed, and takes no other with it, whatever a call raises; "is not there" is no
trouble. Must not know vendors, nor how readings are sent.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from overwatch.catalog.machine import PROCESS_MEMORY, THROTTLE
from overwatch.extras import Extra
from overwatch.sdk.exporter.lanes import Gpu

_T = TypeVar("_T")
MOST: Final = 64
"""Things that are remembered; more of them are one fault with a changing text."""
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that has no readings."""

    text: str
    trouble: bool = True
    """Whether it is there and cannot be read."""


class Unread:
    """Notes so far; safe from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: set[str] = set()
        self._fresh: list[Note] = []

    def note(self, what: str, why: object, fix: str = "") -> None:
        """Keep that `what` cannot be read, with the first reason that is given for it."""
        text = f"{what} cannot be read: {_reason(why)}" + (f"; {fix}" if fix else "")
        self._keep(what, Note(text=text))

    def read(self, what: str, query: Callable[[], _T], otherwise: _T) -> _T:
        """What a call answers; `otherwise` where it raises, and `what` is noted."""
        try:
            return query()
        except Exception as error:  # noqa: BLE001 the border: a driver may do anything
            self.note(what, error)
            return otherwise

    def text(self, what: str, query: Callable[[], str | bytes]) -> str:
        """The same of a call that answers a word; empty where it raises."""
        return self.read(what, lambda: as_text(query), "")

    def lacks(self, extra: Extra) -> None:
        """Keep that something is there and the packages that read it are not."""
        self._keep(extra.name, Note(text=extra.need))

    def missing(self, what: str) -> None:
        """Keep that something is not there: a fact about a machine, and no trouble."""
        self._keep(what, Note(text=what, trouble=False))

    def _keep(self, what: str, note: Note) -> None:
        with self._guard:
            if what not in self._known and len(self._known) < MOST:
                self._known.add(what)
                self._fresh.append(note)

    def take(self) -> tuple[Note, ...]:
        """Notes since this was last called."""
        with self._guard:
            fresh, self._fresh = self._fresh, []
        return tuple(fresh)


def _reason(why: object) -> str:
    """A reason as one line: an error by its kind and text."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return " ".join(text.split())[:_LONGEST]


class Rates:
    """What counters rise by in a second."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def of(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Per second since the last time; none on the first, nor when a counter went back."""
        now = time.monotonic()
        rates = {}
        for name, total in totals.items():
            before = self._last.get(name)
            self._last[name] = (now, total)
            if before is not None and now > before[0] and total >= before[1]:
                rates[name] = (total - before[1]) / (now - before[0])
        return rates


def as_text(query: Callable[[], str | bytes]) -> str:
    """What a call answers, as text: bytes that are none are marked, and the rest can still be read."""
    try:
        word = query()
    except UnicodeDecodeError as error:
        word = error.object
    return word.decode("utf-8", "replace").strip("\0 ") if isinstance(word, bytes) else str(word)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment."""

    numbers: dict[str, float] = {}
    """By catalogue name; what could not be read is left out."""
    throttle: str | None = None
    """Why it is slower than it could be, words joined by commas; `none` where nothing is; `None` unknown."""
    lost: bool = False
    """The driver reports that the GPU is gone, or that the driver itself is."""


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """An error that the driver reported of a GPU."""

    uuid: str
    code: int


class Question(Protocol):
    """A look at one or several GPUs that may hang; asked by one thread, one at a time."""

    def query(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Readings by UUID: whole ones of `uuids`, of others only what concerns the trainer's process."""
        ...

    @property
    def name(self) -> str:
        """Names its thread."""
        ...


class Source(Protocol):
    """A way to GPUs. Calls may hang; each is made by one thread at a time."""

    @property
    def unread(self) -> Unread:
        """What cannot be read, and why."""
        ...

    def open(self) -> tuple[Gpu, ...]:
        """Find the GPUs anew; none where there is no driver. Not to be called while a question is asked."""
        ...

    def questions(self, uuids: frozenset[str]) -> tuple[Question, ...]:
        """Looks that together cover these GPUs; what hangs in one does not hold up another."""
        ...

    def xids(self) -> tuple[Xid, ...]:
        """Errors since it was last asked, without waiting for one."""
        ...


class _GoneError(Exception):
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


Found: TypeAlias = float | Mapping[str, float] | None
"""A number, several by catalogue name, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Reads one GPU through a vendor's package, call by call."""

    name: str
    """Its UUID."""
    codes: Codes
    unread: Unread
    own_memory: Callable[[], float | None]
    """What the trainer's process holds of it."""
    readings: Mapping[str, Callable[[], Found]]
    throttle: Callable[[], str | None]

    def query(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Everything where this GPU is among `uuids`, else what the trainer's process holds of it."""
        numbers, throttle = dict[str, float](), None
        try:
            self._read(PROCESS_MEMORY.name, self.own_memory, numbers)
            if self.name in uuids:
                for name, query in self.readings.items():
                    self._read(name, query, numbers)
                throttle = self._guarded(THROTTLE.name, self.throttle)
        except _GoneError:
            return {self.name: Reading(lost=True)}
        return {self.name: Reading(numbers=numbers, throttle=throttle)}

    def _read(self, name: str, query: Callable[[], Found], numbers: dict[str, float]) -> None:
        found = self._guarded(name, query)
        several = found if isinstance(found, Mapping) else {name: found}
        numbers.update(
            {name: value for name, value in several.items() if value is not None and math.isfinite(value)}
        )

    def _guarded(self, what: str, query: Callable[[], _T]) -> _T | None:
        """One reading, left out where the call raises; raises `_GoneError` when the GPU is gone."""
        try:
            return query()
        except Exception as error:  # noqa: BLE001 the border: a driver may do anything
            code = self.codes.of(error)
            if code in self.codes.gone:
                raise _GoneError from None
            if code not in self.codes.unknown:
                self.unread.note(f"{what} of {self.name}", error)
            return None
