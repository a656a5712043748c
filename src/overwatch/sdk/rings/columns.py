"""The short way of `run.envs`: NumPy columns into the ring, each copied once.

Rules: takes only exact, one-dimensional, contiguous arrays of numbers of the same length, in the machine's
byte order, which must be little-endian; everything else goes to `slow`, which must end in `RingSet.put`.
Finds NumPy where it is loaded and never loads it. Must not know the catalogue.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time_ns
from typing import Any, Final, Protocol

from overwatch.catalog import Scope
from overwatch.events import MAX_ROWS
from overwatch.sdk.rings.layout import ALIGN, HEAD, INDEXED, ONE, PRIME, Kind, checksum, tag
from overwatch.sdk.rings.records import Form
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.rings.writer import Entry
from overwatch.sdk.values import RefusedError

MAX_FORMS: Final = 1024
_MAX_INDEX: Final = 1 << 62
_DTYPES: Final = {
    "d": "<f8", "f": "<f4", "l": "<i8", "q": "<i8", "i": "<i4", "h": "<i2", "b": "|i1",
    "I": "<u4", "H": "<u2", "B": "|u1", "?": "|u1",
}  # fmt: skip
"""By the letter that the buffer protocol has for them."""
_pack: Final = HEAD.pack_into
_PLAIN: Final = int(Kind.COLUMNS)
_INDEXED: Final = Kind.COLUMNS | INDEXED
_LITTLE: Final = sys.byteorder == "little"
_IDS: Final = frozenset("lqihbIHB")


class Slow(Protocol):
    """`run.envs` the long way."""

    def __call__(self, env_id: Any, step: Any, columns: Mapping[str, Any], /) -> None:
        """Numbers of one env step."""


@dataclass(frozen=True, slots=True)
class _Known:
    number: int
    width: int
    """Bytes a row."""
    plain: int
    """Tag without rows of a record without index."""
    indexed: int
    """The same with index."""


class FastColumns:
    """Takes env columns for a ring set.

    `resolve` gives the full name of a short one or raises `RefusedError`; `slow` takes what cannot go the
    short way.
    """

    def __init__(
        self, rings: RingSet, resolve: Callable[[str], str], slow: Slow, scope: Scope = Scope.ENV
    ) -> None:
        self._rings = rings
        self._chute = rings.numbers
        self._resolve = resolve
        self._slow = slow
        self._scope = scope
        self._known: dict[tuple[tuple[str, ...], str], _Known | None] = {}

    def put(self, env_id: Any, step: int | None, columns: Mapping[str, Any]) -> None:
        """One array a name; without `env_id` the envs are 0, 1, 2, ..."""
        at = time_ns()
        views = _views(env_id, columns)
        if views and (step is None or (type(step) is int and -_MAX_INDEX < step < _MAX_INDEX)):
            letters = "".join([view.format for view in views])
            names = tuple(columns)
            known = self._known.get((names, letters)) or self._find(names, letters, env_id is not None)
            if known is not None:
                self._put(known, views, at, step)
                return
        self._slow(env_id, step, columns)

    def _put(self, known: _Known, views: list[memoryview], at: int, step: int | None) -> None:
        if step is None:
            kind, which, index = _PLAIN, known.plain, 0
        else:
            kind, which, index = _INDEXED, known.indexed, step
        rows = len(views[0])
        length = HEAD.size + known.width * rows
        size = (length + ALIGN - 1) & -ALIGN
        chute = self._chute
        ring = chute.ring
        try:
            del ring.token[0]
        except IndexError:
            chute.set_aside(Entry(kind, at, b"".join(views), index, known.number, rows))
            return
        try:
            off = ring.off
            if off + size > ring.limit or size > ring.largest:
                chute.take(Entry(kind, at, b"".join(views), index, known.number, rows))
            else:
                memory = ring.view
                start = first = off + HEAD.size
                for view in views:
                    end = start + view.nbytes
                    memory[start:end] = view.cast("B")
                    start = end
                word = ring.word + ONE + size // ALIGN
                which |= rows << 32
                crc = checksum(memory[first:start], (at + index + which) % PRIME)
                _pack(memory, off, length, crc, word, at, index, which)
                ring.publish(word, size)
        except BaseException:
            chute.recover()
            raise
        finally:
            ring.token.append(None)
        if chute.aside:
            chute.flush()

    def _find(self, names: tuple[str, ...], letters: str, has_ids: bool) -> _Known | None:  # noqa: FBT001
        key = names, letters
        if key in self._known or len(self._known) >= MAX_FORMS:
            return self._known.get(key)
        try:
            known = self._known[key] = self._learn(names, letters, has_ids=has_ids)
        except BusyError:
            return None
        return known

    def _learn(self, names: tuple[str, ...], letters: str, *, has_ids: bool) -> _Known | None:
        if has_ids and letters[0] not in _IDS:
            return None
        dtypes = tuple(_DTYPES[letter] for letter in letters)
        try:
            full = tuple(self._resolve(name) for name in names)
            if len(set(full)) < len(full):
                return None
            form = Form(
                names=("env_id", *full) if has_ids else full,
                dtypes=dtypes,
                scope=self._scope,
                keys=int(has_ids),
                first_ids=not has_ids,
            )
            number = self._rings.add_form(form)
        except (RefusedError, UnicodeError):
            return None
        if number is None:
            return None
        width = sum(int(dtype[2:]) for dtype in dtypes)
        return _Known(number, width, tag(_PLAIN, number, 0), tag(_INDEXED, number, 0))


def _views(env_id: Any, columns: Mapping[str, Any]) -> list[memoryview] | None:
    """The arrays' bytes, ids first; `None` when one of them must go the long way."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not columns or not _LITTLE:
        return None
    array = numpy.ndarray
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
