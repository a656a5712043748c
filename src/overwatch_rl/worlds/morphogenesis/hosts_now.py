"""Today's hosts behind the interface of all hosts: added branches only, ratio and share from their health.

Goes when `hosts` is a package of its own.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from overwatch_rl.worlds.morphogenesis import hosts
from overwatch_rl.worlds.morphogenesis.blueprints import BLUEPRINTS
from overwatch_rl.worlds.morphogenesis.digits import NUM_CLASSES, NUM_PIXELS

_GENERATORS: Final = ("order", "growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the branches are connected during one step."""

    alpha: Tensor  # N K float32, 0 where not connected
    isolated: Tensor  # N K bool
    blueprint: Tensor  # N K int64, -1 where no branch is
    algorithm: Tensor  # N K int64, 0 added, 1 multiplied, 2 gated


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What one step of training was like."""

    loss: Tensor  # N float32
    is_finite: Tensor  # N bool
    health: Tensor  # N K float32, NaN where no branch learned
    ratio: Tensor  # N K float32
    share: Tensor  # N K float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How well hosts do, and what each branch contributes."""

    accuracy: Tensor  # N float32
    loss: Tensor  # N float32
    contribution: Tensor  # N K float32, NaN where no branch is


class Hosts:
    """N hosts with K branches each."""

    def __init__(self, num_hosts: int, num_slots: int) -> None:
        self._hosts = hosts.Hosts(num_hosts, num_slots)
        self._shape = (num_hosts, num_slots)
        self._measured_loss = torch.full((num_hosts,), torch.nan)
        self._kept: dict[str, Tensor] = {}
        self.num_parameters = (NUM_PIXELS + 1) * hosts.HOST_WIDTH + (hosts.HOST_WIDTH + 1) * NUM_CLASSES
        self.sizes = torch.tensor([float(blueprint.num_parameters) for blueprint in BLUEPRINTS])

    def seed(self, seed: int) -> None:
        """Restart both streams of randomness."""
        self._hosts.seed(seed)

    def restart(self, rows: Tensor | None = None) -> None:
        """New untrained hosts in `rows` (int64), everywhere without."""
        if rows is None:
            self._hosts.restart()
            return
        before = self._state()
        self._hosts.restart()
        new = self._state()
        self._put({name: self._swapped(name, before[name], new[name], rows) for name in before})

    def germinate(self, rows: Tensor) -> None:
        """New branches in `rows` (int64, host x K + slot)."""
        self._hosts.germinate(rows)

    def train(self, wiring: Wiring) -> Learned:
        """One step of every host."""
        health = self._hosts.train(self._plain(wiring))
        return Learned(
            loss=self._measured_loss,
            is_finite=torch.ones(self._shape[0], dtype=torch.bool),
            health=health,
            ratio=health,
            share=health,
        )

    def validate(self, wiring: Wiring) -> Measured:
        """Accuracy, loss and contributions on all validation images."""
        found = self._hosts.validate(self._plain(wiring))
        is_live = wiring.isolated | (wiring.alpha > 0)
        gain = torch.where(is_live, found.gain, torch.nan)
        return Measured(accuracy=found.accuracy, loss=found.loss, contribution=gain)

    def keep(self, rows: Tensor) -> None:
        """Take a snapshot of these hosts."""
        state = self._state()
        self._kept = {
            name: self._swapped(name, self._kept.get(name, value), value, rows)
            for name, value in state.items()
        }

    def roll_back(self, rows: Tensor) -> None:
        """Become as in the snapshot, these hosts only."""
        state = self._state()
        self._put({name: self._swapped(name, state[name], self._kept[name], rows) for name in state})

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        kept = {f"kept.{name}": value.clone() for name, value in self._kept.items()}
        return self._hosts.state_dict() | kept

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        self._kept = {
            name.removeprefix("kept."): value.clone()
            for name, value in state.items()
            if name.startswith("kept.")
        }
        self._hosts.load_state_dict(state)

    def _state(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._hosts.state_dict().items() if name not in _GENERATORS}

    def _put(self, state: dict[str, Tensor]) -> None:
        self._hosts.load_state_dict(self._hosts.state_dict() | state)

    def _swapped(self, name: str, old: Tensor, new: Tensor, rows: Tensor) -> Tensor:
        """`old` with the rows of these hosts as in `new`."""
        if name.startswith("branches."):
            rows = (rows[:, None] * self._shape[1] + torch.arange(self._shape[1])).flatten()
        found = old.clone()
        found[rows] = new[rows]
        return found

    def _plain(self, wiring: Wiring) -> hosts.Wiring:
        return hosts.Wiring(alpha=wiring.alpha, isolated=wiring.isolated, blueprint=wiring.blueprint)
