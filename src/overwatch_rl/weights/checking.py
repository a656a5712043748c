"""What tensors are published as, and whether they are those of a manifest: kinds, shapes, digests."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import torch
from safetensors import TensorSpec
from torch import Tensor

from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.weights.manifest import Shape, TensorEntry

if TYPE_CHECKING:
    from overwatch_rl.weights.subscriber import Acting


ROUNDED: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def rounded(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """As they are published: matrices and kernels in a row of `ROUNDED`, which are nearly all of the bytes.

    Vectors and scalars stay as they are: among them are statistics, which rounding would spoil.
    """
    return {
        name: tensor.to(ROUNDED[dtype]) if tensor.dtype == torch.float32 and tensor.dim() > 1 else tensor
        for name, tensor in tensors.items()
    }


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """What an actor wants to be published: `Accepted.shapes`."""
    found = {}
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        as_in_files = TensorSpec(dtype=dtype, shape=[0], data_ptr=0, data_len=0).dtype
        found[name] = Shape(str(as_in_files), tuple(tensor.shape))
    return found


def digest_of(tensor: Tensor) -> str:
    """The XXH3 of its bytes, in the order of a file."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return xxh3_of(flat.numpy().data)


def check_weights(state: Mapping[str, Tensor], acting: "Acting") -> list[str]:
    """Names of the tensors of `acting` that are not, bit for bit, in an algorithm's state; best empty.

    A number that was published in fewer bits has to be that one, whatever it is held in.
    """
    return [
        name
        for name, entry in sorted(acting.manifest.tensors.items())
        if name not in state or not _is_held(state[name], acting.tensors[name], entry)
    ]


def _is_held(held: Tensor, published: Tensor, entry: TensorEntry) -> bool:
    if digest_of(published) != entry.xxh3 or held.shape != published.shape:
        return False
    if held.dtype != published.dtype and held.element_size() <= published.element_size():
        return False
    return digest_of(held) == digest_of(published.to(held.dtype))
