"""Where a host would learn most from one more branch: the gradient that a branch without output would get.

The criterion of Evci et al. 2022, "GradMax: growing neural networks using gradient information": a new branch
has zero output weights, so it changes nothing, and is the better the larger the norm of its gradient. Rules:
every branch is tried on the host's next data and forgotten, so hosts and generators stay as they were, to the
bit. Must not know stages, rewards or policies.

Shape letters: N hosts, K slots, B blueprints.
"""

from dataclasses import replace

import torch
from torch import Tensor

from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts


def gradients(hosts: MLPHosts, wiring: Wiring, free: Tensor) -> Tensor:
    """N K B float32: the norm of each blueprint's gradient in the slots `free` (N K bool), over its host's.

    NaN elsewhere. The host's is its norm a weight, the same for all that is compared.
    """
    state = {name: value.clone() for name, value in hosts.state_dict().items()}
    rows = free.flatten().nonzero().squeeze(1)
    found = []
    for number, size in enumerate(hosts.sizes):
        hosts.germinate(rows)
        tried = replace(
            wiring,
            isolated=wiring.isolated | free,
            blueprint=torch.where(free, number, wiring.blueprint),
        )
        found.append(hosts.train(tried).ratio * size.sqrt())
        hosts.load_state_dict(state)
    return torch.where(free[..., None], torch.stack(found, dim=2), torch.nan)
