"""`run.update` into the ring: twelve numbers in a microsecond or two, and no value is ever read.

Names that come again are a form, so a record holds numbers only. msgspec writes an exact float as nine bytes,
a tag and a double, and refuses what it does not know without running that value's code. So where every ninth
byte says "float", all values were floats: none had to be read, and no device was waited for.

Rules: never raises by itself; what it does not take, odd values and odd names, goes the long way. Must not
know the catalogue.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from operator import itemgetter
from time import time_ns
from typing import Any, Final

from overwatch.sdk.rings.layout import Kind, tag
from overwatch.sdk.rings.records import Form, encode
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
"""Sets of names that are remembered; a run has a handful."""
_NUMBER: Final = 9
"""Bytes of a double in msgpack, its tag first."""
_FLOAT: Final = b"\xcb"
INDICES: Final = frozenset({int, type(None)})
"""Types of the number of an update or a step that need no look."""


class _Known:
    """A set of names in use."""

    __slots__ = ("count", "every", "floats", "names", "numbers", "tag")

    def __init__(self, names: tuple[str, ...], tag: int) -> None:
        count = len(names)
        first = 2 if count < 16 else 4 if count < 1 << 16 else 6
        self.names = names
        self.count = count
        self.tag = tag
        self.numbers: Callable[[Mapping[str, object]], tuple[object, ...]] = _getter(names)
        """The numbers in the order of the names; `KeyError` where one is missing."""
        self.every = slice(first, first + _NUMBER * count, _NUMBER)
        """The tags of the numbers in a payload: the outer array has one byte, the inner one, of the numbers,
        as many as its length needs, and the first tag follows."""
        self.floats = _FLOAT * count
        """What they are where all numbers are exact floats."""


def _getter(names: tuple[str, ...]) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple([values[name] for name in names])


_NONE: Final = _Known((), 0)
_NONE.count = -1


class Latest:
    """The number of the last update."""

    __slots__ = ("update",)

    def __init__(self) -> None:
        self.update: int | None = None


class UpdateWriter:
    """Encodes updates.

    `resolve` gives the full name of a short one or raises `RefusedError`; `slow` takes what goes the long
    way, and everything while something is in `waiting`, which it must not overtake.
    """

    __slots__ = ("_known", "_last", "_latest", "_put", "_resolve", "_rings", "_slow", "_waiting")

    def __init__(
        self,
        rings: RingSet,
        latest: Latest,
        resolve: Callable[[str], str],
        slow: Callable[[int | None, Mapping[str, Any]], None],
        waiting: Sized = (),
    ) -> None:
        self._rings = rings
        self._latest = latest
        self._resolve = resolve
        self._slow = slow
        self._waiting = waiting
        self._put = rings.numbers.put
        self._known: dict[tuple[str, ...], _Known | None] = {}
        self._last = _NONE
        """The names that came last: those that come next, mostly."""

    def update(self, /, *, update: int | None = None, **values: Any) -> None:
        """Numbers of one policy update, by their short names."""
        known = self._last
        try:
            numbers = known.numbers(values)
        except KeyError:
            known = _NONE
        if len(values) != known.count:
            found = self._find(tuple(values))
            if found is None:
                self._slow(update, values)
                return
            self._last = known = found
            numbers = known.numbers(values)
        try:
            payload: bytes = encode((numbers, time_ns(), update))
        except Exception:  # noqa: BLE001 a stranger's type; the long way names the value
            payload = b""
        if payload[known.every] != known.floats or type(update) not in INDICES or self._waiting:
            converted = self._converted(numbers, update)
            if converted is None:
                self._slow(update, values)
                return
            payload = converted
        self._latest.update = update
        put = self._put
        put(known.tag, payload)

    def _converted(self, numbers: Sequence[object], update: object) -> bytes | None:
        """An update of numbers that are plain and no floats; `None` where it must go the long way."""
        if self._waiting or type(update) not in INDICES:
            return None
        plain = _plain(numbers)
        if plain is None:
            return None
        try:
            return encode((plain, time_ns(), update))
        except OverflowError:  # a number of the update that no 64 bits hold
            return None

    def _find(self, names: tuple[str, ...]) -> _Known | None:
        """What is known of a set of names; `None` where it has no form now."""
        if names in self._known or len(self._known) >= MAX_FORMS or not names:
            return self._known.get(names)
        try:
            known = self._known[names] = self._learn(names)
        except BusyError:
            return None
        return known

    def _learn(self, names: tuple[str, ...]) -> _Known | None:
        try:
            full = tuple(self._resolve(name) for name in names)
            number = self._rings.add_form(Form(names=full)) if len(set(full)) == len(full) else None
        except (RefusedError, UnicodeError):
            return None
        return None if number is None else _Known(names, tag(Kind.UPDATE, number))


def _plain(numbers: Sequence[object]) -> list[float] | None:
    """Numbers whose types are known to be plain, as floats; `None` when there is another."""
    if not _plain_types("numpy" in sys.modules).issuperset(map(type, numbers)):
        return None
    with contextlib.suppress(OverflowError):
        return [float(number) for number in numbers]  # type: ignore[arg-type] # of plain types
    return None


@functools.cache
def _plain_types(has_numpy: bool) -> frozenset[type]:  # noqa: FBT001
    """Types whose `float()` is quick and runs nobody's code."""
    plain: set[type] = {float, int, bool}
    if has_numpy:
        import numpy as np

        plain |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdg"}
    return frozenset(plain)
