"""Settings of the world, checked: sizes, durations, what gates ask, rollbacks, reward.

Durations are in steps of the world. The defaults fit an episode of 60 steps: those of a task with 150 steps,
times 0.4. Must not know tensors.
"""

from dataclasses import dataclass
from math import inf
from typing import Final

from overwatch_rl.worlds.base import MAX_SLOTS

_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "slots": (1, MAX_SLOTS),
    **dict.fromkeys(("steps", "min_prune_age", "embargo", "snapshot_every", "max_rollbacks"), (1, inf)),
    **dict.fromkeys(("min_train", "min_hold", "attribute_every", "rent", "shaping", "max_ratio"), (0, inf)),
    **dict.fromkeys(("min_health", "gamma"), (0, 1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MorphogenesisConfig:
    """Settings of this world alone. Raises `ValueError` naming the one that is wrong."""

    slots: int = 3
    """Slots of each environment."""
    steps: int = 60
    """Steps of an episode."""
    min_train: int = 4
    """Steps that a seed trains before G2 can pass it."""
    min_hold: int = 2
    """Steps that a seed holds before G5 can pass it."""
    max_hold: int = 15
    """Steps after which a seed that still holds is pruned."""
    min_prune_age: int = 2
    """Steps since it germinated before a seed can be pruned."""
    embargo: int = 2
    """Steps for which a slot stays embargoed after a prune."""
    min_health: float = 0.05
    """Gradient health that G2 asks: the smaller of branch's and host's gradient a weight, over the larger."""
    max_ratio: float = 20.0
    """Gradient ratio, branch over host, above which G2 calls a seed exploding."""
    snapshot_every: int = 5
    """Steps between two snapshots of a host; one is taken when a seed fossilises too."""
    max_rollbacks: int = 3
    """Rollbacks that end an episode."""
    rent: float = 0.002
    """Accuracy that a step costs, times ln(1 + parameters grown / parameters of the host)."""
    shaping: float = 0.02
    """Accuracy that one unit of the shaped terms is worth."""
    gamma: float = 0.995
    """Discount of the stage bonus; training sets it to the learner's: another would move the optimum."""
    attribute_every: int = 10
    """Steps of the world between two attributions; 0 attributes nothing."""

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, name) <= most or getattr(self, name) == inf:
                bound = f"{least} or more" if most == inf else f"{least} to {most}"
                raise ValueError(f"{name} is {getattr(self, name)}; use {bound}")
        if self.max_hold <= self.min_hold:
            raise ValueError(
                f"max_hold is {self.max_hold}; use more than min_hold, which is {self.min_hold}, "
                "else no seed can fossilise"
            )
