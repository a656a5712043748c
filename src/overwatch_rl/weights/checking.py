"""Whether tensors are those that a manifest describes: kinds, shapes, digests."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from safetensors import TensorSpec
from torch import Tensor

from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.weights.manifest import Shape

if TYPE_CHECKING:
    from overwatch_rl.weights.subscriber import Acting


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """What an actor wants to be published: `Accepted.shapes`."""
    return {name: Shape(_kind(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()}


def digest_of(tensor: Tensor) -> str:
    """The XXH3 of its bytes, in the order of a file."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return xxh3_of(flat.numpy().data)


def check_weights(state: Mapping[str, Tensor], acting: "Acting") -> list[str]:
    """Names of the tensors of `acting` that are not, bit for bit, in an algorithm's state; best empty."""
    wanted = acting.manifest.tensors
    found = shapes_of({name: state[name] for name in wanted.keys() & state.keys()})
    return [
        name
        for name, entry in sorted(wanted.items())
        if name not in found
        or (found[name].dtype, found[name].shape) != (entry.dtype, entry.shape)
        or digest_of(state[name]) != entry.xxh3
    ]


def _kind(dtype: torch.dtype) -> str:
    """As a file names it."""
    return str(TensorSpec(dtype=str(dtype).removeprefix("torch."), shape=[0], data_ptr=0, data_len=0).dtype)
