"""What an optimiser remembers of each parameter, as tensors by name: `optimizer.NUMBER.MOMENT`.

Must not know which optimiser it is, nor algorithms.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def moments_of(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """By number of the parameter; tensors are not copied."""
    return {
        f"optimizer.{number}.{name}": value
        for number, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
    }


def load_moments(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], state: Mapping[str, Tensor]
) -> None:
    """Copy them back, as each parameter lies in memory."""
    optimizer.state.clear()
    for number, parameter in enumerate(parameters):
        if kept := below(f"optimizer.{number}.", state):
            optimizer.state[parameter] = {name: laid_like(parameter, value) for name, value in kept.items()}


def below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def laid_like(parameter: Tensor, value: Tensor) -> Tensor:
    """A copy of a moment where its parameter is and as it lies in memory; of a count, where it is."""
    if value.shape != parameter.shape:
        return value.detach().clone().to(parameter.device)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
