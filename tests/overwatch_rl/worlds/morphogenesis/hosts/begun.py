"""Hosts and wirings as the tests of hosts need them."""

import torch

from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts

NUM_HOSTS = 3
CPU = torch.device("cpu")


def wiring(
    alpha: float, *, isolated: bool = False, blueprint: int = 0, algorithm: int = 0, slots: int = 1
) -> Wiring:
    """All slots of all hosts connected the same way."""
    shape = (NUM_HOSTS, slots)
    return Wiring(
        alpha=torch.full(shape, alpha),
        isolated=torch.full(shape, isolated),
        blueprint=torch.full(shape, blueprint),
        algorithm=torch.full(shape, algorithm),
    )


def bare(slots: int = 1) -> Wiring:
    """No branch anywhere."""
    return wiring(0.0, blueprint=-1, slots=slots)


def mixed() -> Wiring:
    """Three slots: all ways to blend, connected or isolated or absent, several blueprints and the no-op."""
    noop = len(MLP) - 1
    return Wiring(
        alpha=torch.tensor([[0.5, 1.0, 0.7], [0.0, 0.3, 0.0], [0.0, 0.0, 0.0]]),
        isolated=torch.tensor([[False, False, False], [True, False, True], [True, False, True]]),
        blueprint=torch.tensor([[0, 1, 2], [3, 0, 1], [2, -1, noop]]),
        algorithm=torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 0]]),
    )


def begun(slots: int = 1, hosts: int = NUM_HOSTS) -> MLPHosts:
    """New hosts with a branch germinated in each slot."""
    made = MLPHosts(hosts, slots, digits(), CPU)
    made.seed(3)
    made.restart()
    made.germinate(torch.arange(hosts * slots))
    return made
