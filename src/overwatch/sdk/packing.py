"""Tensors as the trainer gives them, packed: many small ones of a device and dtype into one new tensor.

Rules: torch is found where it already is and never loaded. Nothing here reads a value, so nothing waits: a
pack is a new tensor, made by one operation that is queued behind whatever computes its inputs. It keeps its
dtype, except that one NumPy lacks is widened to float32, which holds it exactly. Code of a tensor's subclass
never runs. What cannot be packed is refused by name and the rest goes on. Must not know how a pack travels.
"""

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from overwatch.sdk.values import RefusedError


class Tensor(Protocol):
    """As much of a `torch.Tensor` as modules tell each other of."""

    def numel(self) -> int:
        """How many values it has."""
        ...

    def element_size(self) -> int:
        """Bytes of one value."""
        ...


Refuse: TypeAlias = Callable[[str, RefusedError], None]
"""Is told the name of a value that is left out, and why."""
Check: TypeAlias = Callable[[str, int], None]
"""Raises `RefusedError` when nothing can be sent now from a kind of device and its index."""

ERRORS: Final = (RuntimeError, TypeError, ValueError, AttributeError)
"""What torch raises for a tensor that has no values to give, e.g. one inside `torch.func.vmap`."""

_EXACT: Final = (
    "float64", "float32", "float16", "bool",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
_WIDENED: Final = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


class Shape(Enum):
    """What each tensor must be."""

    SCALARS = "one number"
    COLUMNS = "a column of numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One-dimensional tensor with the values of several tensors behind each other."""

    kind: str
    """Kind of device, e.g. `cuda`."""
    names: tuple[str, ...]
    rows: tuple[int, ...]
    """How many values each has."""
    packed: Tensor


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether a value is a torch tensor; runs no code of the value, and costs little when torch is absent."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def pack(tensors: Mapping[str, Tensor], shape: Shape, check: Check, refuse: Refuse) -> list[Pack]:
    """Tensors packed by device and dtype, each group in the order given."""
    torch: Any = sys.modules["torch"]
    groups: dict[tuple[str, int, object], dict[str, Any]] = {}
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001 keeps modes and subclasses out
        for name, tensor in tensors.items():
            try:
                key, flat = _admit(torch, tensor, shape)
                groups.setdefault(key, {})[name] = flat
            except RefusedError as error:
                refuse(name, error)
            except ERRORS as error:
                refuse(name, _no_values(error))
        found = [_join(torch, key, group, shape, check) for key, group in groups.items()]
    packs = []
    for one, group in zip(found, groups.values(), strict=True):
        if isinstance(one, Pack):
            packs.append(one)
        else:
            for name in group:
                refuse(name, one)
    return packs


def _admit(torch: Any, tensor: Any, shape: Shape) -> tuple[tuple[str, int, object], Any]:
    """The tensor in the dimensions wanted, and its group; raises `RefusedError`."""
    own = type(tensor)
    if own is not torch.Tensor and own.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise RefusedError(
            f"a {own.__name__} runs code of its own when it is read; pass a plain tensor of it, "
            "e.g. `.to_local()` or `.full_tensor()` of a DTensor"
        )
    if tensor.layout is not torch.strided or tensor.dtype not in _dtypes(torch):
        raise RefusedError(f"a tensor of {tensor.dtype} in {tensor.layout} is not of plain numbers")
    dimensions = tensor.dim()
    if shape is Shape.SCALARS and dimensions:
        if tensor.numel() != 1:
            raise RefusedError(f"a tensor of shape {tuple(tensor.shape)} is not one number")
        tensor = tensor.reshape(())
    elif shape is Shape.COLUMNS and dimensions != 1:
        if dimensions:
            raise RefusedError(f"a tensor of shape {tuple(tensor.shape)} is not a column of numbers")
        tensor = tensor.reshape(1)
    if tensor.is_cpu:
        return ("cpu", -1, tensor.dtype), tensor
    return (tensor.device.type, tensor.get_device(), tensor.dtype), tensor


def _join(
    torch: Any, key: tuple[str, int, object], group: dict[str, Any], shape: Shape, check: Check
) -> Pack | RefusedError:
    """One group as one new tensor, or why it cannot be."""
    kind, index, dtype = key
    tensors = list(group.values())
    try:
        check(kind, index)
        packed = torch.stack(tensors) if shape is Shape.SCALARS else torch.cat(tensors)
        if not _dtypes(torch)[dtype]:
            packed = packed.to(torch.float32)
    except RefusedError as error:
        return error
    except ERRORS as error:
        return _no_values(error)
    rows = tuple(tensor.numel() for tensor in tensors) if shape is Shape.COLUMNS else (1,) * len(tensors)
    return Pack(kind=kind, names=tuple(group), rows=rows, packed=packed)


def _no_values(error: Exception) -> RefusedError:
    return RefusedError(f"a tensor that cannot be copied: {type(error).__name__}: {error}")


@functools.cache
def _dtypes(torch: ModuleType) -> dict[object, bool]:
    """Dtypes that are taken, and whether NumPy has them."""
    taken = {getattr(torch, name, None): True for name in _EXACT}
    taken |= {getattr(torch, name, None): False for name in _WIDENED}
    taken.pop(None, None)
    return taken
