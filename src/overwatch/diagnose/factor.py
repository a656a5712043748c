"""What a factor of the anomaly score is, and how heavy it may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from overwatch.diagnose.fleet import Fleet
from overwatch.diagnose.limits import AnomalyLimits
from overwatch.state.arrays import Floats

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

    def told(self, row: int) -> str:
        """The reason for one row as it stands beside the name."""
        return (self.tell or self.say)(row)


Rule: TypeAlias = Callable[[Fleet, AnomalyLimits], Factor | None]
