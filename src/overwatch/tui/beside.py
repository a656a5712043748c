"""Two recorded runs beside one another, as the page that shows them may know them.

Owns where each run stood at an update; what is shown of both follows the replay of the first. Must not know
drawing, nor how runs are compared.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from overwatch.analyse.verdicts import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One number of one run, by update."""

    updates: Sequence[float]
    values: Sequence[float]

    def upto(self, update: float) -> Sequence[float]:
        """The values up to an update, oldest first."""
        return self.values[: bisect_right(self.updates, update)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of both runs."""

    name: str
    label: str
    fmt: str
    verdict: str
    """Of the second run beside the first, over their last part."""
    delta: float | None
    parted: float | None
    """The update at which they part."""
    sides: tuple[Side, Side]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Two runs."""

    names: tuple[str, str]
    headline: str
    rows: tuple[Row, ...]
    verdicts: tuple[Sequence[Told], Sequence[Told]]
    """What was said of each run over time."""

    def told(self, side: int, update: float) -> Told | None:
        """What was said of a run when it was at an update."""
        said = self.verdicts[side]
        at = bisect_right([one.update for one in said], update)
        return said[at - 1] if at else None
