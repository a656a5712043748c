"""`run.envs` into the ring: NumPy columns as they lie in memory, with their names in a form.

Rules: takes only exact, one-dimensional, contiguous arrays of numbers of the same length, in the machine's
byte order, which must be little-endian; everything else goes the long way. Finds NumPy where it is loaded and
never loads it. Must not know the catalogue.
"""

import struct
import sys
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, Final

from overwatch.events import MAX_ROWS
from overwatch.sdk.rings.layout import Kind, tag
from overwatch.sdk.rings.records import STAMP, Form
from overwatch.sdk.rings.ringset import BusyError, RingSet
from overwatch.sdk.rings.updates import INDICES, MAX_FORMS
from overwatch.sdk.values import RefusedError

_DTYPES: Final = {
    "d": "<f8", "f": "<f4", "l": "<i8", "q": "<i8", "i": "<i4", "h": "<i2", "b": "|i1",
    "I": "<u4", "H": "<u2", "B": "|u1", "?": "|u1",
}  # fmt: skip
"""By the letter that the buffer protocol has for them."""
_LITTLE: Final = sys.byteorder == "little"
_IDS: Final = frozenset("lqihbIHB")


class ColumnWriter:
    """Encodes env columns; `resolve` gives the full name of a short one or raises `RefusedError`."""

    def __init__(self, rings: RingSet, resolve: Callable[[str], str]) -> None:
        self._rings = rings
        self._put = rings.numbers.put
        self._resolve = resolve
        self._known: dict[tuple[tuple[str, ...], str], int | None] = {}
        """Tags by names and letters; those of the ids are letters too."""

    def write(self, env_id: Any, step: object, columns: Mapping[str, Any]) -> bool:
        """Write one array a name; False where they must go the long way.

        Without `env_id` the envs are 0, 1, 2, ...
        """
        at = time_ns()
        views = _views(env_id, columns)
        if views is None or type(step) not in INDICES:
            return False
        key = tuple(columns), "".join([view.format for view in views])
        which = self._known.get(key) or self._find(*key, has_ids=env_id is not None)
        if which is None:
            return False
        try:
            stamp = STAMP.pack(at, 0 if step is None else step, step is not None)
        except struct.error:  # a step that no 64 bits hold
            return False
        self._put(which, b"".join([stamp, *views]))
        return True

    def _find(self, names: tuple[str, ...], letters: str, *, has_ids: bool) -> int | None:
        key = names, letters
        if key in self._known or len(self._known) >= MAX_FORMS:
            return self._known.get(key)
        try:
            known = self._known[key] = self._learn(names, letters, has_ids=has_ids)
        except BusyError:
            return None
        return known

    def _learn(self, names: tuple[str, ...], letters: str, *, has_ids: bool) -> int | None:
        if has_ids and letters[0] not in _IDS:
            return None
        try:
            full = tuple(self._resolve(name) for name in names)
            if len(set(full)) < len(full):
                return None
            form = Form(
                names=("env_id", *full) if has_ids else full,
                dtypes=tuple(_DTYPES[letter] for letter in letters),
                has_ids=has_ids,
            )
            number = self._rings.add_form(form)
        except (RefusedError, UnicodeError):
            return None
        return None if number is None else tag(Kind.COLUMNS, number)


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
