"""Tensors as the trainer gives them, packed: many small ones of a device and dtype into one new tensor.

Rules: torch is found where it already is and never loaded. Nothing here reads a value, so nothing waits: a
pack is a new tensor, made by one operation that is queued behind whatever computes its inputs. It keeps its
dtype, except that one NumPy lacks is widened to float32, which holds it exactly. Code of a tensor's subclass
never runs. What cannot be packed is refused by name and the rest goes on. Must not know how a pack travels.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import msgspec

from overwatch.sdk.values import RefusedError


class Tensor(Protocol):
    """As much of a `torch.Tensor` as modules know of one another's."""

    def numel(self) -> int:
        """How many values it has."""
        ...

    def element_size(self) -> int:
        """Bytes of one value."""
        ...


Refuse: TypeAlias = Callable[[str, RefusedError], None]
"""Receives the name of a value that is left out, and why."""
Check: TypeAlias = Callable[[str, int], None]
"""Raises `RefusedError` when nothing can be sent now from a kind of device and its index."""
_Key: TypeAlias = tuple[str, int, object]
"""Kind of device, index, dtype."""

ERRORS: Final = (RuntimeError, TypeError, ValueError, AttributeError)
"""Refusals, and what torch raises for a tensor without values to give, e.g. one inside `torch.func.vmap`."""

_EXACT: Final = (
    "float64", "float32", "float16", "bool",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
_WIDENED: Final = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


class Shape(Enum):
    """What each tensor must be; the value is its dimensions."""

    SCALARS = 0
    COLUMNS = 1
    TABLES = -1
    """Any dimensions; the values one after another."""


class Pack(msgspec.Struct, frozen=True):
    """One-dimensional tensor with the values of several tensors behind each other."""

    kind: str
    """Kind of device, e.g. `cuda`."""
    names: tuple[str, ...]
    rows: tuple[int, ...]
    """How many values each has."""
    packed: Tensor


def tensor_type() -> type | None:
    """`torch.Tensor`, where torch is loaded. Runs no code of the trainer's, as `isinstance` may."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind if isinstance(kind, type) else None


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether a value is a torch tensor; runs no code of the value, and costs little when torch is absent."""
    kind = tensor_type()
    return kind is not None and issubclass(type(value), kind)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Torch as it is by itself: no graph, no casts of autocast, no functions of modes and subclasses."""
    torch: Any = sys.modules["torch"]
    inner = torch._C  # noqa: SLF001 torch has no other names for two of them
    with inner.DisableTorchFunction(), inner._DisableAutocast(), torch.no_grad():  # noqa: SLF001
        yield


def pack(tensors: Mapping[str, Tensor], shape: Shape, check: Check, refuse: Refuse) -> list[Pack]:
    """Tensors packed by device and dtype, each group in the order given. For use in `undisturbed`."""
    torch: Any = sys.modules["torch"]
    dtypes = _dtypes(torch)
    groups: dict[_Key, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        try:
            key, flat = _admit(torch, dtypes, tensor, shape)
            groups.setdefault(key, {})[name] = flat
        except ERRORS as error:
            refuse(name, _refusal(error))
    packs: list[Pack] = []
    for key, group in groups.items():
        try:
            check(key[0], key[1])
            packs.append(_join(torch, key, group, shape))
        except ERRORS as error:
            for name in group:
                refuse(name, _refusal(error))
    return packs


def _admit(torch: Any, dtypes: Mapping[object, bool], tensor: Any, shape: Shape) -> tuple[_Key, Any]:
    """The tensor in the dimensions wanted, and its group; raises `RefusedError`."""
    own = type(tensor)
    if own is not torch.Tensor and own.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise RefusedError(
            f"a {own.__name__} runs code of its own when it is read; pass a plain tensor of it, "
            "e.g. `.to_local()` or `.full_tensor()` of a DTensor"
        )
    dtype = tensor.dtype
    if dtype not in dtypes or tensor.layout is not torch.strided:
        raise RefusedError(f"a tensor of {dtype} in {tensor.layout} is not of plain numbers")
    if tensor.dim() != shape.value:
        tensor = _reshape(tensor, shape)
    if tensor.is_cpu:
        return ("cpu", -1, dtype), tensor
    return (tensor.device.type, tensor.get_device(), dtype), tensor


def _reshape(tensor: Any, shape: Shape) -> Any:
    """A tensor with the wanted dimensions, all others being 1; raises `RefusedError` for any other."""
    if shape is Shape.SCALARS:
        if tensor.numel() == 1:
            return tensor.reshape(())
    elif shape is Shape.TABLES or tensor.numel() == (tensor.shape[0] if tensor.dim() else 1):
        return tensor.reshape(-1)
    wanted = "one number" if shape is Shape.SCALARS else "a column of numbers"
    raise RefusedError(f"a tensor of shape {tuple(tensor.shape)} is not {wanted}")


def _join(torch: Any, key: _Key, group: dict[str, Any], shape: Shape) -> Pack:
    """One group as one new tensor."""
    kind, _, dtype = key
    tensors = list(group.values())
    packed = torch.stack(tensors) if shape is Shape.SCALARS else torch.cat(tensors)
    if not _dtypes(torch)[dtype]:
        packed = packed.to(torch.float32)
    rows = (1,) * len(tensors) if shape is Shape.SCALARS else tuple(tensor.numel() for tensor in tensors)
    return Pack(kind=kind, names=tuple(group), rows=rows, packed=packed)


def _refusal(error: Exception) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    return RefusedError(f"a tensor that cannot be copied: {type(error).__name__}: {error}")


@functools.cache
def _dtypes(torch: ModuleType) -> dict[object, bool]:
    """Dtypes that are taken, and whether NumPy has them."""
    taken = {getattr(torch, name, None): True for name in _EXACT}
    taken |= {getattr(torch, name, None): False for name in _WIDENED}
    taken.pop(None, None)
    return taken
