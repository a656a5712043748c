"""Columns of a rollout as the trainer gives them: looked at, copied or lent, and made sound later.

Rules: what runs in the trainer's thread reads no value: it looks at shapes and types and copies. What is
lent is copied by whichever comes first: the thread that delivers, or the next call. What cannot be taken is
refused by name and the rest goes on. Must not know rings.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from overwatch.sdk.packing import ERRORS, Tensor, is_tensor, tensor_type, undisturbed
from overwatch.sdk.rollouts.columns import (
    ACTIONS,
    CHOICES,
    KNOWN,
    Known,
    Span,
    WordTables,
    shape_of,
    takes_floats,
)
from overwatch.sdk.values import RefusedError

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray"
Refuse: TypeAlias = Callable[[str, RefusedError], None]


class Given:
    """The columns of one rollout that can be taken; its arrays are its own, unless they are lent."""

    def __init__(self, *, is_lent: bool = False) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.arrays: dict[str, Array] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.is_reduced = False
        """Only means and ends of episodes are wanted."""
        self._is_lent = is_lent
        self._owning = threading.Lock()

    def drop(self, name: str) -> None:
        """Leave out a column."""
        for held in (self.tensors, self.arrays, self.shapes):
            held.pop(name, None)

    def own(self) -> None:
        """Copy what is lent, unless that was done."""
        with self._owning:
            if self._is_lent:
                self.arrays = {name: array.copy(order="C") for name, array in self.arrays.items()}
                self._is_lent = False

    def give(self) -> dict[str, Array]:
        """The arrays, which are the receiver's from now on; only once."""
        self.own()
        arrays, self.arrays = self.arrays, {}
        return arrays

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def given(
    columns: Mapping[str, object], span: Span, words: WordTables, refuse: Refuse, *, copy: bool
) -> Given:
    """Columns of the right shape and type; the rest is refused. Without `copy` those of the CPU are lent."""
    found = Given(is_lent=not copy)
    has_tensors = any(map(is_tensor, columns.values()))
    with undisturbed() if has_tensors else contextlib.nullcontext():
        for name, value in columns.items():
            try:
                shape = found.shapes[name] = shape_of(name, span, words)
                if is_tensor(value):
                    _take_tensor(found, name, value, shape, copy=copy)
                else:
                    found.arrays[name] = _array(name, value, shape, copy=copy)
            except RefusedError as error:
                found.drop(name)
                refuse(name, error)
    return found


def _take_tensor(found: Given, name: str, tensor: Any, shape: tuple[int, ...], *, copy: bool) -> None:
    """Take a tensor of the CPU by its own memory, as NumPy has it; any other has to be packed."""
    _check(name, tuple(tensor.shape), shape)
    if tensor.dtype.is_complex or (tensor.dtype.is_floating_point and not takes_floats(name)):
        raise RefusedError(f"a tensor of {tensor.dtype} is not of {_wanted(name)}")
    is_plain = type(tensor) is tensor_type()
    if is_plain and tensor.is_cpu:
        with contextlib.suppress(*ERRORS):
            view: Array = (tensor.detach() if tensor.requires_grad else tensor).numpy()
            # NumPy copies in this thread: torch would share the work out, and wait for its threads.
            found.arrays[name] = view.copy(order="C") if copy else view
            return
    found.tensors[name] = tensor


def _array(name: str, value: object, shape: tuple[int, ...], *, copy: bool) -> Array:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        raise RefusedError(f"a {type(value).__name__} is no table; pass a tensor or an array of NumPy")
    if isinstance(value, numpy.ma.MaskedArray):
        raise RefusedError("a masked array; fill it first, e.g. `.filled(0)`")
    _check(name, value.shape, shape)
    if value.dtype.kind not in ("fiub" if takes_floats(name) else "iub"):
        raise RefusedError(f"an array of {value.dtype} is not of {_wanted(name)}")
    found: Array = numpy.array(value, order="C", subok=False) if copy else numpy.asarray(value)
    return found


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
            for place, (head, _) in enumerate(words.heads):
                shown = "op" if not place else head
                if shown in ("op", "slot", "blueprint"):
                    found[shown] = _codes(shown, KNOWN[shown], table[..., place], words, refuse)
        elif name == CHOICES:
            found |= likeliest(table, tables)
        elif known is None:
            found[name] = table.astype(_travelling(table.dtype), copy=False)
        elif known.words is not None:
            found[name] = _codes(name, known, table, words, refuse)
        elif known.dtype == "|u1":
            found[name] = (table != 0).astype("|u1")
        else:
            found[name] = table.astype(known.dtype, copy=False)
    return found


def likeliest(table: Array, tables: Mapping[str, Array]) -> dict[str, Array]:
    """Of the probabilities of operations, T N P: that of the one taken, and the two likeliest others."""
    import numpy as np

    actions = tables.get(ACTIONS)
    taken = tables.get("op") if actions is None else actions[..., 0]
    if taken is None:
        return {}
    taken = np.clip(taken.astype("<i8"), 0, table.shape[2] - 1)[..., None]
    found = {"confidence": np.take_along_axis(table, taken, axis=2)[..., 0].astype("<f4")}
    rest = table.astype("<f4")
    np.put_along_axis(rest, taken, -1.0, axis=2)
    for name in ("second", "third")[: table.shape[2] - 1]:
        best = rest.argmax(axis=2)[..., None]
        share = np.take_along_axis(rest, best, axis=2)[..., 0]
        found[name] = np.where(share > 0, best[..., 0], -1).astype("<i2")
        found[f"{name}_confidence"] = np.where(share > 0, share, np.nan).astype("<f4")
        np.put_along_axis(rest, best, -1.0, axis=2)
    return found


_TRAVELS: Final = frozenset({"<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u4", "<u2", "|u1"})
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
        odd = f"{int(np.count_nonzero(unknown))} codes, e.g. {worst}, have no word: {count} are known"
        refuse(name, RefusedError(odd))
        codes[unknown] = -1
    return codes.astype(known.dtype)
