"""Two recorded runs beside one another, as the page that shows them may know them.

Owns where each run stood at an update; what is shown of both follows the replay of the first. Must not know
drawing. Loads `analyse` only where runs are compared.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from overwatch.analyse.findings import Reported

if TYPE_CHECKING:
    from overwatch.analyse.run_history import RunHistory

_NAMED: Final = 4
"""Numbers that a headline names."""


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
class Comparison:
    """Two runs."""

    names: tuple[str, str]
    headline: str
    rows: tuple[Row, ...]
    verdicts: tuple[Sequence[Reported], Sequence[Reported]]
    """Of each run, over time."""

    def verdict_at(self, side: int, update: float) -> Reported | None:
        """The verdict on a run when it was at an update."""
        own = self.verdicts[side]
        at = bisect_right([one.update for one in own], update)
        return own[at - 1] if at else None


def comparison_of(first: "RunHistory", second: "RunHistory") -> Comparison:
    """Both runs, aligned by update."""
    from overwatch.analyse.compare import CompareConfig, alike_until, compare, partings

    comparison = compare([first, second], CompareConfig())
    parted = [one for one in partings(comparison) if not one.against.divergence.from_start]
    headline = "no number leaves the noise of both runs"
    if parted:
        names = ", ".join(one.metric.label for one in parted[:_NAMED])
        headline = f"B parts from A at update {parted[0].at[0]:,.0f}: {names}"
    alike = alike_until(comparison, 1)
    if alike is not None:
        headline += f"; the same to the bit up to {alike:,.0f}"
    rows = []
    for metric in comparison.metrics:
        (one,) = metric.against
        where = one.divergence.parted
        rows.append(
            Row(
                name=metric.name,
                label=metric.label,
                fmt=metric.fmt,
                verdict=one.effect.verdict,
                delta=one.effect.delta,
                parted=None if where is None else where[0],
                sides=(_side(first, metric.name), _side(second, metric.name)),
            )
        )
    return Comparison(
        names=(first.run.run_id, second.run.run_id),
        headline=headline,
        rows=tuple(rows),
        verdicts=(first.verdicts, second.verdicts),
    )


def _side(run_history: "RunHistory", name: str) -> Side:
    from overwatch.analyse.compare import along, numbers

    x, values = along(numbers(run_history)[name], "update")
    return Side(updates=x.tolist(), values=values.tolist())
