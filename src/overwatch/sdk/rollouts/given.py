"""Columns of a rollout as the trainer gives them: looked at, copied, and made sound later.

Rules: what runs in the trainer's thread reads no value: it looks at shapes and types and copies. What cannot
be taken is refused by name and the rest goes on. Must not know rings.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from overwatch.sdk.packing import Tensor, is_tensor, undisturbed
from overwatch.sdk.rollouts.columns import ACTIONS, KNOWN, Known, Span, shape_of, takes_floats
from overwatch.sdk.values import RefusedError
from overwatch.sdk.words import WordTables

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray"
Refuse: TypeAlias = Callable[[str, RefusedError], None]


class Given:
    """The columns of one rollout that can be taken; arrays are copies."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.is_reduced = False
        """Only means and ends of episodes are wanted."""

    def drop(self, name: str) -> None:
        """Leave out a column."""
        for held in (self.tensors, self.arrays, self.shapes):
            held.pop(name, None)

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return sum(array.nbytes for array in self.arrays.values())


def given(columns: Mapping[str, object], span: Span, words: WordTables, refuse: Refuse) -> Given:
    """Columns of the right shape and type, each copied once; the others are refused."""
    found = Given()
    for name, value in columns.items():
        try:
            shape = shape_of(name, span, words)
            if is_tensor(value):
                with undisturbed():
                    _check_tensor(name, value, shape)
                found.tensors[name] = value
            else:
                found.arrays[name] = _copied(name, value, shape)
            found.shapes[name] = shape
        except RefusedError as error:
            refuse(name, error)
    return found


def _check_tensor(name: str, tensor: Any, shape: tuple[int, ...]) -> None:
    _check(name, tuple(tensor.shape), shape)
    if tensor.dtype.is_complex or (tensor.dtype.is_floating_point and not takes_floats(name)):
        raise RefusedError(f"a tensor of {tensor.dtype} is not of {_wanted(name)}")


def _copied(name: str, value: object, shape: tuple[int, ...]) -> Array:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        raise RefusedError(f"a {type(value).__name__} is no table; pass a tensor or an array of NumPy")
    if isinstance(value, numpy.ma.MaskedArray):
        raise RefusedError("a masked array; fill it first, e.g. `.filled(0)`")
    _check(name, value.shape, shape)
    if value.dtype.kind not in ("fiub" if takes_floats(name) else "iub"):
        raise RefusedError(f"an array of {value.dtype} is not of {_wanted(name)}")
    copy: Array = numpy.array(value, order="C", subok=False)
    return copy


def _check(name: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if found != shape:
        known = KNOWN.get(name, Known())
        what = "steps, envs" if len(shape) == 2 else f"steps, envs and a value a {known.per.value}"
        raise RefusedError(f"shape {found}, not {shape}: {what}")


def _wanted(name: str) -> str:
    return "numbers" if takes_floats(name) else "whole numbers or truths"


def sound(tables: Mapping[str, Array], words: WordTables, refuse: Refuse) -> dict[str, Array]:
    """Tables in the types that travel; a code that no word has is absent, and refused. Not for training."""
    found: dict[str, Array] = {}
    for name, table in tables.items():
        known = KNOWN.get(name)
        if name == ACTIONS:
            heads = {
                head: place for place, (head, _) in enumerate(words.heads) if head in ("slot", "blueprint")
            }
            for head, place in {"op": 0, **heads}.items():
                found[head] = _codes(head, KNOWN[head], table[..., place], words, refuse)
        elif known is None:
            found[name] = table.astype(_travelling(table.dtype), copy=False)
        elif known.words is not None:
            found[name] = _codes(name, known, table, words, refuse)
        elif known.dtype == "|u1":
            found[name] = (table != 0).astype("|u1")
        else:
            found[name] = table.astype(known.dtype, copy=False)
    return found


_TRAVELS = frozenset({"<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u4", "<u2", "|u1"})
"""Types of `overwatch.events.Column`."""


def _travelling(dtype: "np.dtype[Any]") -> str:
    """The type in which numbers of some type travel."""
    found = dtype.newbyteorder("<").str
    if found in _TRAVELS:
        return found
    return {"b": "|u1", "f": "<f4" if dtype.itemsize < 4 else "<f8"}.get(dtype.kind, "<i8")


def _codes(name: str, known: Known, table: Array, words: WordTables, refuse: Refuse) -> Array:
    """Codes from 0, -1 where there is none."""
    import numpy as np

    count = known.words(words) if known.words else 0
    codes = table.astype("<i8") - known.first
    unknown = (codes < -1) | (codes >= count)
    if unknown.any():
        worst = int(codes[unknown][0]) + known.first
        refuse(
            name,
            RefusedError(
                f"{int(np.count_nonzero(unknown))} codes, e.g. {worst}, have no word: {count} are known"
            ),
        )
        codes[unknown] = -1
    return codes.astype(known.dtype)
