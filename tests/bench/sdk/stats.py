"""Quantiles, goals, and how both are printed."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field


def emit(text: str = "") -> None:
    """One line of the report, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


@dataclass(frozen=True)
class Cost:
    """Microseconds of a call, from blocks of calls."""

    p50: float
    """Median of the blocks' medians."""
    p99: float
    """Median of the blocks' 99th percentiles."""
    low: float
    """First quartile of the blocks' medians."""
    high: float
    """Third quartile of the blocks' medians."""
    worst: float
    blocks: int

    @classmethod
    def of(cls, blocks: Sequence[Sequence[float]]) -> "Cost":
        """From blocks of nanoseconds."""
        medians = [statistics.median(block) / 1000 for block in blocks]
        return cls(
            p50=statistics.median(medians),
            p99=statistics.median(quantile(block, 0.99) / 1000 for block in blocks),
            low=quantile(medians, 0.25),
            high=quantile(medians, 0.75),
            worst=max(max(block) for block in blocks) / 1000,
            blocks=len(blocks),
        )

    def __str__(self) -> str:
        spread = f"{self.low:8.2f} – {self.high:7.2f}"
        return f"{self.p50:9.2f} {self.p99:9.2f} {spread} {self.worst:10.1f} {self.blocks:7d}"


@dataclass
class Goals:
    """What was aimed at, and what came of it."""

    lines: list[str] = field(default_factory=list)

    def most(self, what: str, value: float | None, limit: float, unit: str = "") -> None:
        """Note a goal that a value should not exceed; `None` was not measured."""
        self._note(what, value, f"≤ {limit:g}{unit}", value is not None and value <= limit, unit)

    def least(self, what: str, value: float | None, limit: float, unit: str = "") -> None:
        """Note a goal that a value should reach."""
        self._note(what, value, f"≥ {limit:g}{unit}", value is not None and value >= limit, unit)

    def _note(self, what: str, value: float | None, limit: str, is_met: bool, unit: str) -> None:  # noqa: FBT001
        verdict = "not measured" if value is None else "met" if is_met else "NOT MET"
        shown = "" if value is None else f"{value:.4g}{unit}"
        self.lines.append(f"{what:68} {limit:>12} {shown:>12}  {verdict}")
