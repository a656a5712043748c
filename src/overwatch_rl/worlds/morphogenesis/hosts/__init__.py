"""Kinds of host networks, one row each."""

from collections.abc import Callable
from typing import Final

import torch

from overwatch_rl.worlds.morphogenesis.data import Dataset
from overwatch_rl.worlds.morphogenesis.hosts.base import Hosts, Learned, Measured, Wiring
from overwatch_rl.worlds.morphogenesis.hosts.cnn import CNNHosts
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts

__all__ = ["HOSTS", "Hosts", "Learned", "Measured", "Wiring"]

HOSTS: Final[dict[str, Callable[[int, int, Dataset, torch.device], Hosts]]] = {
    "mlp": MLPHosts,
    "cnn": CNNHosts,
}
"""How many hosts and slots, of which data, on which device."""
