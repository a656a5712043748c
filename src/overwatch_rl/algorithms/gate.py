"""The gate: whether a minibatch takes its step is decided on the device.

A gradient that is not finite, or a stop that was set before, leaves parameters, moments and step counts
bit-unchanged, through the `found_inf` of the fused optimiser; tensors without values have no such optimiser
and no gate. Must not know any algorithm.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from overwatch_rl.algorithms.ranks import Ranks


def averaged(parameters: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    """The gradient of each parameter over all ranks, in place; zero where it has none."""
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    ranks.average(gradients)
    return gradients


@torch.no_grad()
def gated_step(
    optimizer: torch.optim.Optimizer,
    gradients: list[Tensor],
    ranks: Ranks,
    stopped: Tensor,
    max_grad_norm: float,
) -> tuple[Tensor, Tensor]:
    """Clip `averaged` gradients and step unless the gate is shut; the norm of each before, and of all."""
    norms = torch.stack(torch._foreach_norm(gradients))  # noqa: SLF001 as torch's own clipping does
    norm = torch.linalg.vector_norm(norms)
    torch._foreach_mul_(gradients, (max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
    if not norm.is_meta:
        skip = ranks.any(stopped | ~torch.isfinite(norm))
        optimizer.found_inf = skip.float()  # type: ignore[attr-defined]  # read by the fused step
    optimizer.step()
    return norms, norm
