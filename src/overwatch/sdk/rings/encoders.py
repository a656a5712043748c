"""What comes often, into the ring: `run.update`, twelve numbers in a microsecond or two, and `run.envs`.

Names that come again are a form, so a record holds numbers only, and no value is ever read. Of an update,
msgspec writes an exact float as nine bytes, a tag and a double, and refuses what it does not know without
running that value's code. So where every ninth byte means "float", all values were floats: none had to be
read, and no device was waited for. Columns of NumPy go as they lie in memory: exact, one-dimensional,
contiguous arrays of numbers of the same length, in the machine's byte order, which must be little-endian.

Rules: never raises by itself; what it does not take, odd values and odd names, goes the long way. Finds NumPy
where it is loaded and never loads it. Must not know the catalogue.
"""

import contextlib
import functools
import struct
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from operator import itemgetter
from time import time_ns
from typing import Any, Final, Generic, TypeVar

from overwatch.events import MAX_ROWS
from overwatch.sdk.rings.file import Kind, tag
from overwatch.sdk.rings.records import STAMP, Form, encode
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
"""Sets of names that are remembered; a run has a handful."""
_INDICES: Final = frozenset({int, type(None)})
"""Types of the number of an update or a step that need no look."""
_NUMBER: Final = 9
"""Bytes of a double in msgpack, its tag first."""
_FLOAT: Final = b"\xcb"
_DTYPES: Final = {
    "d": "<f8", "f": "<f4", "l": "<i8", "q": "<i8", "i": "<i4", "h": "<i2", "b": "|i1",
    "I": "<u4", "H": "<u2", "B": "|u1", "?": "|u1",
}  # fmt: skip
"""By the letter that the buffer protocol has for them."""
_LITTLE: Final = sys.byteorder == "little"
_IDS: Final = frozenset("lqihbIHB")
Resolve = Callable[[str], str]
"""The full name of a short one; raises `RefusedError`."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Known(Generic[_Key, _Value]):
    """What is known of names that came before: something of their form, `None` where they can have none."""

    def __init__(self, rings: RingSet, resolve: Resolve) -> None:
        self._rings, self._resolve = rings, resolve
        self._found: dict[_Key, _Value | None] = {}

    def find(self, key: _Key, learn: Callable[[_Key], _Value | None]) -> _Value | None:
        """What was learnt of a key, once; `None` where it has no form now."""
        if key in self._found or len(self._found) >= MAX_FORMS:
            return self._found.get(key)
        try:
            known = self._found[key] = learn(key)
        except BusyError:
            return None
        return known

    def form(
        self, names: Sequence[str], dtypes: tuple[str, ...] = (), *, has_ids: bool = False
    ) -> int | None:
        """The number of the form of some names; `None` where one is refused or twice there, or no room is."""
        try:
            full = tuple(map(self._resolve, names))
            if len(set(full)) < len(full):
                return None
            full = ("env_id", *full) if has_ids else full
            return self._rings.add_form(Form(names=full, dtypes=dtypes, has_ids=has_ids))
        except (RefusedError, UnicodeError):
            return None


class _Names:
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


_NONE: Final = _Names((), 0)
_NONE.count = -1


class Latest:
    """The number of the last update."""

    __slots__ = ("update",)

    def __init__(self) -> None:
        self.update: int | None = None


class UpdateWriter:
    """Encodes updates.

    `slow` takes what goes the long way, and everything while something is in `waiting`, which it must not
    overtake.
    """

    __slots__ = ("_known", "_last", "_latest", "_put", "_slow", "_waiting")

    def __init__(
        self,
        rings: RingSet,
        latest: Latest,
        resolve: Resolve,
        slow: Callable[[int | None, Mapping[str, Any]], None],
        waiting: Sized = (),
    ) -> None:
        self._latest = latest
        self._slow = slow
        self._waiting = waiting
        self._put = rings.numbers.put
        self._known = _Known[tuple[str, ...], _Names](rings, resolve)
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
            found = self._known.find(tuple(values), self._learn)
            if found is None:
                self._slow(update, values)
                return
            self._last = known = found
            numbers = known.numbers(values)
        try:
            payload: bytes = encode((numbers, time_ns(), update))
        except Exception:  # noqa: BLE001 an unknown type; the long way names the value
            payload = b""
        if payload[known.every] != known.floats or type(update) not in _INDICES or self._waiting:
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
        if self._waiting or type(update) not in _INDICES:
            return None
        plain = _plain(numbers)
        if plain is None:
            return None
        try:
            return encode((plain, time_ns(), update))
        except OverflowError:  # a number of the update that no 64 bits hold
            return None

    def _learn(self, names: tuple[str, ...]) -> _Names | None:
        form = self._known.form(names) if names else None
        return None if form is None else _Names(names, tag(Kind.UPDATE, form))


def _plain(numbers: Sequence[object]) -> list[float] | None:
    """Numbers whose types are known to be plain, as floats; `None` when there is another."""
    if not _plain_types("numpy" in sys.modules).issuperset(map(type, numbers)):
        return None
    with contextlib.suppress(OverflowError):
        return [float(number) for number in numbers]  # type: ignore[arg-type] # of plain types
    return None


@functools.cache
def _plain_types(has_numpy: bool) -> frozenset[type]:  # noqa: FBT001
    """Types whose `float()` is quick and runs no other code."""
    plain: set[type] = {float, int, bool}
    if has_numpy:
        import numpy as np

        plain |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdg"}
    return frozenset(plain)


class ColumnWriter:
    """Encodes env columns."""

    def __init__(self, rings: RingSet, resolve: Resolve) -> None:
        self._put = rings.numbers.put
        self._known = _Known[tuple[tuple[str, ...], str, bool], int](rings, resolve)
        """Tags by names, letters (those of the ids too) and whether there are ids."""

    def write(self, env_id: Any, step: object, columns: Mapping[str, Any]) -> bool:
        """Write one array a name; False where they must go the long way.

        Without `env_id` the envs are 0, 1, 2, ...
        """
        at = time_ns()
        views = _views(env_id, columns)
        if views is None or type(step) not in _INDICES:
            return False
        key = tuple(columns), "".join([view.format for view in views]), env_id is not None
        which = self._known.find(key, self._learn)
        if which is None:
            return False
        try:
            stamp = STAMP.pack(at, 0 if step is None else step, step is not None)
        except struct.error:  # a step that no 64 bits hold
            return False
        self._put(which, b"".join([stamp, *views]))
        return True

    def _learn(self, key: tuple[tuple[str, ...], str, bool]) -> int | None:
        names, letters, has_ids = key
        if has_ids and letters[0] not in _IDS:
            return None
        dtypes = tuple(_DTYPES[letter] for letter in letters)
        form = self._known.form(names, dtypes, has_ids=has_ids)
        return None if form is None else tag(Kind.COLUMNS, form)


def _views(env_id: Any, columns: Mapping[str, Any]) -> list[memoryview] | None:
    """The arrays' bytes, ids first; `None` when one of them must go the long way."""
    array = getattr(sys.modules.get("numpy"), "ndarray", None)  # none yet while NumPy is being imported
    if array is None or not columns or not _LITTLE:
        return None
    arrays = list(columns.values()) if env_id is None else [env_id, *columns.values()]
    views: list[memoryview] = []
    try:
        rows = len(arrays[0])
        for one in arrays:
            if type(one) is not array:
                return None
            view = memoryview(one)
            if view.shape != (rows,) or not view.c_contiguous or view.format not in _DTYPES:
                return None
            views.append(view)
    except (ValueError, TypeError):
        return None
    return views if 1 < rows <= MAX_ROWS else None
