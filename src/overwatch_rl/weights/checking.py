"""Whether two processes act with the same numbers, by the digests in a manifest."""

from collections.abc import Mapping

from torch import Tensor

from overwatch_rl.weights.manifest import Shape
from overwatch_rl.weights.subscriber import Acting


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """What an actor wants to be published: `Accepted.shapes`."""
    raise NotImplementedError


def check_weights(state: Mapping[str, Tensor], acting: Acting) -> list[str]:
    """Names of the tensors of `acting` that are not, bit for bit, in an algorithm's state; best empty."""
    raise NotImplementedError
