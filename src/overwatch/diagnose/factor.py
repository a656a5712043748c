"""What a factor of the anomaly score is, when the graded ones begin to weigh, and how heavy each may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from overwatch.diagnose.fleet import Fleet
from overwatch.state.arrays import Floats


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A multiplier for each factor, by its rule's name; 0 turns it off. Raises `ValueError` below 0."""

    crashed: float = 1.0
    """An env that died."""
    non_finite: float = 1.0
    """A value that must be finite and was not."""
    slow_step: float = 1.0
    """Steps far slower than the fleet's."""
    slow_lane: float = 1.0
    """Steps slow with the whole lane."""
    silent: float = 1.0
    """No record while others step."""
    reward_collapse: float = 1.0
    """Finished episodes that earn far less than the fleet's and than before."""
    rent_without_gain: float = 1.0
    """Far more rent than the fleet, and the metric does not move."""
    cull_rate: float = 1.0
    """Far more culls than the fleet."""
    gate_failures: float = 1.0
    """Far more failed gates than the fleet."""
    action_collapse: float = 1.0
    """The same action far longer than any other env."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"weight {name} is {getattr(self, name)}; it must be 0 (off) or above")


class AnomalyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the graded factors start to weigh. Raises `ValueError` for limits that cannot be met."""

    weights: Weights = Weights()
    """How much each factor counts."""
    slow_step: float = 4.0
    """A step is slow from this many times the fleet's median on."""
    slow_lane: float = 1.3
    """A lane is slow from this many times the median step of the other lanes of its kind on."""
    silent_s: float = 5.0
    """An env is silent when others reported this many seconds after its last record, and longer than its own
    rhythm allows."""
    non_finite_hold_s: float = 60.0
    """A non-finite value is held against an env for this long."""
    margin: float = 3.0
    """Robust standard deviations beyond √(2 ln N), at which an env of a fleet of N stands out."""
    own_drop: float = 3.0
    """Robust standard deviations that an env's recent return must lie below its own earlier ones."""
    fleet_drop: float = 3.0
    """Robust standard deviations that the fleet's return must fall to be a collapse of the policy."""
    crowd: float = 0.2
    """When more than this share of the fleet stands out by return, the others must have finished an episode
    since, as good as before: else it is not about single envs."""
    rent_times: float = 2.0
    """Rent must be at least this many times the fleet's median."""
    gain_steps: int = 50
    """Steps over which the metric must have gained something."""
    least_events: int = 4
    """Culls or failed gates of one env in a minute below which nothing is reported."""
    least_repeats: int = 50
    """Steps with the same action, one after another, below which nothing is reported."""

    def __post_init__(self) -> None:
        for name in ("slow_step", "slow_lane", "silent_s", "non_finite_hold_s", "rent_times", "own_drop"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 < self.crowd <= 1:
            raise ValueError(f"crowd is {self.crowd}; it is a share of the fleet, above 0 and at most 1")


HARD: Final = 10.0
"""Weight of a fault that needs no judgement."""
SOFT_CAP: Final = 3.0
"""Most that a graded factor may weigh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One reason for envs to stand out."""

    name: str
    status: str
    """What an env with this factor is called, if nothing worse is."""
    weight: Floats
    """Per env, shape (n,); 0 where the factor does not apply."""
    say: Callable[[int], str]
    """The reason for one row, short, with numbers; it stands alone."""
    tell: Callable[[int], str] | None = None
    """The same as it stands beside the name, with the numbers that a row of the board has no room for."""

    def reported(self, row: int) -> str:
        """The reason for one row as it stands beside the name."""
        return (self.tell or self.say)(row)


Rule: TypeAlias = Callable[[Fleet, AnomalyLimits], Factor | None]
