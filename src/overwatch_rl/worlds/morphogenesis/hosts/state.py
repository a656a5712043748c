"""What hosts keep: weights, optimisers, streams of randomness, and a copy to go back to.

Rules: a state holds all that the next step depends on, and loading it goes on to the bit. Must not know how
networks compute.

Shape letters: N hosts, K slots, R branches.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from overwatch_rl.worlds.morphogenesis.data import Resident
from overwatch_rl.worlds.morphogenesis.hosts.base import Wiring
from overwatch_rl.worlds.morphogenesis.hosts.stacked import Stacked


class State(ABC):
    """N hosts with K branches each, of one kind; the kind computes."""

    def __init__(self, hosts: Stacked, branches: Stacked, num_slots: int, batches: Resident) -> None:
        self.hosts, self.branches, self.num_slots, self.batches = hosts, branches, num_slots, batches
        self._device = hosts.weights[0].device
        self._num_hosts = len(hosts.weights[0])
        self.starts, self.growth = torch.Generator(self._device), torch.Generator(self._device)
        self._kept = [tensor.clone() for tensor in (*hosts.tensors, *branches.tensors)]
        self._uncut: list[Tensor] = []
        """Rows of new branches whose blueprint no wiring has named yet."""

    @abstractmethod
    def first_values(self) -> list[Tensor]:
        """Weights of N new hosts, from `starts`."""

    @abstractmethod
    def grown_values(self, num_rows: int) -> list[Tensor]:
        """Weights of new branches whose blueprint is not known, from `growth`; they give zero."""

    @abstractmethod
    def shape_branches(self, rows: Tensor, blueprint: Tensor) -> None:
        """Cut new branches (R int64) to their blueprints (R int64)."""

    def seed(self, seed: int) -> None:
        """Restart the streams: data, first weights, and what is grown."""
        self.batches.seed(seed)
        self.growth.manual_seed(seed + 1)
        self.starts.manual_seed(seed + 2)

    def restart(self, hosts: Tensor | None = None) -> None:
        """New untrained hosts in these rows (int64), or everywhere; branches are made when they germinate."""
        rows = torch.arange(self._num_hosts, device=self._device) if hosts is None else hosts
        self.hosts.restart(rows, [value.index_select(0, rows) for value in self.first_values()])
        self.keep(rows)

    def germinate(self, rows: Tensor) -> None:
        """New branches in `rows` (int64, host x K + slot)."""
        if len(rows):
            self.branches.restart(rows, self.grown_values(len(rows)))
            self._uncut.append(rows)

    def cut(self, wiring: Wiring) -> None:
        """Give new branches the blueprints that this wiring names."""
        for rows in self._uncut:
            self.shape_branches(rows, wiring.blueprint.flatten().index_select(0, rows))
        self._uncut.clear()

    def keep(self, hosts: Tensor) -> None:
        """Remember these hosts (int64) with their branches and optimisers, in place of what was kept."""
        for (tensor, kept), rows in zip(self._pairs(), self._rows(hosts), strict=True):
            kept.index_copy_(0, rows, tensor.index_select(0, rows))

    def roll_back(self, hosts: Tensor) -> None:
        """Make these hosts (int64) what was kept of them last."""
        for (tensor, kept), rows in zip(self._pairs(), self._rows(hosts), strict=True):
            tensor.index_copy_(0, rows, kept.index_select(0, rows))

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, copied."""
        uncut = torch.cat([torch.zeros(0, dtype=torch.int64, device=self._device), *self._uncut])
        streams = {
            "order": self.batches.state(),
            "growth": self.growth.get_state(),
            "starts": self.starts.get_state(),
        }
        return {name: tensor.clone() for name, tensor in self._named().items()} | streams | {"uncut": uncut}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        for name, tensor in self._named().items():
            tensor.copy_(state[name])
        self.batches.restore(state["order"])
        self.growth.set_state(state["growth"])
        self.starts.set_state(state["starts"])
        self._uncut = [state["uncut"].clone()] if len(state["uncut"]) else []

    def _named(self) -> dict[str, Tensor]:
        now, kept = zip(*self._pairs(), strict=True)
        names = [f"hosts.{place}" for place in range(len(self.hosts.tensors))]
        names += [f"branches.{place}" for place in range(len(self.branches.tensors))]
        return dict(zip(names, now, strict=True)) | {
            f"kept.{name}": tensor for name, tensor in zip(names, kept, strict=True)
        }

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each tensor with what is kept of it."""
        return list(zip((*self.hosts.tensors, *self.branches.tensors), self._kept, strict=True))

    def _rows(self, hosts: Tensor) -> list[Tensor]:
        """Rows of these hosts in each of `_pairs`."""
        slots = torch.arange(self.num_slots, device=self._device)
        branches = (hosts[:, None] * self.num_slots + slots).flatten()
        return [hosts] * len(self.hosts.tensors) + [branches] * len(self.branches.tensors)
