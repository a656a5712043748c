"""The short way of `run.update`: twelve numbers into the ring in a microsecond or less.

Names that come again are a form, so a record holds numbers only. msgspec writes exact floats as nine bytes
each and refuses what it does not know without running its code; so where every ninth byte says "float", all
values were floats, none had to be asked, and no device was waited for. For each form in use a function is
made, see `written` and `compiled`.

Rules: everything unusual goes to `slow`, which must end in `RingSet.put`. Never raises by itself but for what
`slow` raises. Must not know the catalogue.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from time import time_ns
from typing import Any, Final

import msgspec

from overwatch.sdk.rings.layout import INDEXED, Kind
from overwatch.sdk.rings.records import Form
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.rings.stamped import NUMBER, first_number
from overwatch.sdk.rings.writer import Entry
from overwatch.sdk.rings.written import (
    MAX_CHAIN,
    MAX_WRITTEN,
    Latest,
    Named,
    Update,
    Updater,
    by_name,
    by_place,
)
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
"""Sets of names that are remembered; a run has a handful."""
_WRITE_AT: Final = 2
_WRITE_EVERY: Final = 256
_PLAIN: Final = int(Kind.UPDATE)
_INDEXED: Final = Kind.UPDATE | INDEXED
_MAX_INDEX: Final = 1 << 62
_FLOAT: Final = b"\xcb"
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class _Known:
    """A form in use."""

    names: tuple[str, ...]
    """As the trainer calls them."""
    number: int
    first: int
    """Where the first value's tag is in the payload."""
    tags: bytes
    uses: int = 0


class Fast:
    """Makes `update` for a ring set.

    `resolve` gives the full name of a short one or raises `RefusedError`; `slow` takes an update the long
    way; `install` is given each new function that is to be called from now on.
    """

    def __init__(
        self,
        rings: RingSet,
        latest: Latest,
        resolve: Callable[[str], str],
        slow: Callable[[int | None, Mapping[str, Any]], None],
        install: Callable[[Update], None],
    ) -> None:
        self._rings = rings
        self._latest = latest
        self._resolve = resolve
        self._slow = slow
        self._install = install
        self._known: dict[tuple[str, ...], _Known | None] = {}
        self._head: Update = self.update
        """The newest function; each leaves to the one before what it was not written for."""
        self._chained: set[int] = set()
        """Forms that have one."""

    def update(self, /, *, update: int | None = None, **values: Any) -> None:
        """Numbers of one policy update; short once their names were seen before."""
        at = time_ns()
        names = tuple(values)
        known = self._known.get(names) or self._find(names)
        data = None if known is None else _payload(known, values)
        if known is None or data is None or not _is_index(update):
            self._slow(update, values)
            return
        self._latest.update = update
        kind = _PLAIN if update is None else _INDEXED
        self._rings.numbers.put(Entry(kind, at, data, update or 0, known.number))
        known.uses += 1
        if known.uses % _WRITE_EVERY == _WRITE_AT:
            self._write(known)

    def _find(self, names: tuple[str, ...]) -> _Known | None:
        if names in self._known:
            return self._known[names]
        if len(self._known) >= MAX_FORMS or not names:
            return None
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
        if number is None:
            return None
        return _Known(names=names, number=number, first=first_number(len(names)), tags=_FLOAT * len(names))

    def _write(self, known: _Known) -> None:
        """Write and install the function for a form that has none, before those of other forms."""
        if len(known.names) > MAX_WRITTEN or known.number in self._chained:
            return
        if len(self._chained) >= MAX_CHAIN:
            self._chained.clear()
            self._head = self.update
        form = Named(known.names, known.number)
        self._head = by_name(form, self._rings, self._latest, self._head)
        self._chained.add(known.number)
        self._install(self._head)

    def updater(self, names: tuple[str, ...], waiting: Sized, other: Updater) -> Updater | None:
        """A function that takes numbers of these names by place; `None` where none can be written now.

        It leaves to `other` what it was not written for, and everything while anything is in `waiting`.
        """
        known = self._known.get(names) or self._find(names)
        if known is None or len(names) > MAX_WRITTEN:
            return None
        return by_place(Named(names, known.number), self._rings, self._latest, waiting, other)


def _is_index(update: object) -> bool:
    return update is None or (type(update) is int and -_MAX_INDEX < update < _MAX_INDEX)


def _payload(known: _Known, values: Mapping[str, Any]) -> bytes | None:
    """The numbers as msgpack; `None` when the type of one is not known to be a plain number's."""
    numbers = list(values.values())
    with contextlib.suppress(Exception):  # what a stranger raises; the long way says which value it is
        data = _encode(numbers)
        if data[known.first :: NUMBER] == known.tags:
            return data
    if not _plain_types("numpy" in sys.modules).issuperset(map(type, numbers)):
        return None
    with contextlib.suppress(OverflowError):
        return _encode([float(number) for number in numbers])
    return None


@functools.cache
def _plain_types(has_numpy: bool) -> frozenset[type]:  # noqa: FBT001
    """Types whose `float()` is quick and runs nobody's code."""
    plain: set[type] = {float, int, bool}
    if has_numpy:
        import numpy as np

        plain |= {np.dtype(letter).type for letter in "?bBhHiIlLqQefdg"}
    return frozenset(plain)
