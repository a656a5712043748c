"""Settings of the world, checked: sizes, durations, what gates ask, rollbacks, reward.

Durations are in steps of the world. The defaults fit an episode of 60 steps: those of a task with 150 steps,
times 0.4. Must not know tensors.
"""

from dataclasses import dataclass
from typing import Final

from overwatch_rl.worlds.base import MAX_SLOTS

HOST_KINDS: Final = ("mlp",)
DIGITS: Final = "digits"
STRICTNESS: Final = ("permissive", "strict")
_SHARES: Final = ("min_health", "min_ratio", "min_improvement", "min_contribution")
_AT_LEAST_ONE: Final = ("steps", "min_prune_age", "embargo", "max_hold", "snapshot_every", "max_rollbacks")
_AT_LEAST_ZERO: Final = ("min_train", "min_blend", "min_hold", "attribute_every")


@dataclass(frozen=True, slots=True, kw_only=True)
class MorphogenesisConfig:
    """Settings of this world alone."""

    slots: int = 3
    """Slots of each environment."""
    steps: int = 60
    """Steps of an episode."""
    hosts: str = "mlp"
    """Kind of host networks: `mlp`."""
    data: str = "digits"
    """What hosts learn: `digits`."""
    max_seeds: int | None = None
    """Most seeds that an env holds at a time, fossils included; `none` allows one a slot."""
    gates: str = "permissive"
    """What gates ask: `permissive` or `strict`."""
    min_train: int = 4
    """Steps that a seed trains before G2 can pass it."""
    min_blend: int = 4
    """Steps that a seed blends before a strict G3 can pass it."""
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
    min_ratio: float = 0.1
    """Gradient ratio that a strict G2 asks."""
    min_improvement: float = 0.005
    """Accuracy that a seed would add if it were connected, which a strict G2 asks."""
    min_contribution: float = 0.01
    """Accuracy that a seed contributes, which a strict G5 asks."""
    auto_g1: bool = False
    """Whether G1 is asked by itself."""
    auto_g2: bool = False
    """Whether G2 is asked by itself."""
    auto_g3: bool = False
    """Whether G3 is asked by itself."""
    snapshot_every: int = 5
    """Steps between two snapshots of a host; one is taken when a seed fossilises too."""
    max_rollbacks: int = 3
    """Rollbacks that end an episode."""
    diverged_loss: float = 12.0
    """Loss above which a host may have diverged."""
    reward_mode: str = "shaped"
    """Which parts of the reward are paid: `shaped`, `simplified`, `minimal` or `sparse`."""
    rent: float = 0.002
    """Accuracy that a step costs, times ln(1 + parameters grown / parameters of the host)."""
    shaping: float = 0.02
    """Accuracy that one unit of the shaped terms is worth."""
    gamma: float = 0.995
    """Discount of the stage bonus; training sets it to the learner's: another would move the optimum."""
    attribute_every: int = 10
    """Steps of the world between two attributions; 0 attributes nothing."""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"slots is {self.slots}; use 1 to {MAX_SLOTS}")
        if self.max_seeds is not None and self.max_seeds < 1:
            raise ValueError(f"max_seeds is {self.max_seeds}; use 1 or more, or none")
        if self.hosts not in HOST_KINDS:
            raise ValueError(f"hosts is {self.hosts!r}; use {' or '.join(HOST_KINDS)}")
        if self.data != DIGITS:
            raise ValueError(f"data is {self.data!r}; use {DIGITS}")
        if self.gates not in STRICTNESS:
            raise ValueError(f"gates is {self.gates!r}; use {' or '.join(STRICTNESS)}")
        for names, least in ((_AT_LEAST_ONE, 1), (_AT_LEAST_ZERO, 0)):
            for name in names:
                if getattr(self, name) < least:
                    raise ValueError(f"{name} is {getattr(self, name)}; use {least} or more")
        if self.max_hold <= self.min_hold:
            raise ValueError(
                f"max_hold is {self.max_hold}; use more than min_hold, which is {self.min_hold}, "
                "else no seed can fossilise"
            )
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 0 to 1")
        if not self.max_ratio > self.min_ratio:
            raise ValueError(
                f"max_ratio is {self.max_ratio}; use more than min_ratio, which is {self.min_ratio}"
            )

    @property
    def is_strict(self) -> bool:
        """Whether gates ask all they can."""
        return self.gates == "strict"

    @property
    def auto_gates(self) -> frozenset[str]:
        """Names of the gates that are asked by themselves."""
        flags = {"G1": self.auto_g1, "G2": self.auto_g2, "G3": self.auto_g3}
        return frozenset(name for name, is_set in flags.items() if is_set)
