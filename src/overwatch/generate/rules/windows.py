"""How long alerts look back: values of a deployment, clamped so that each window holds enough.

Pure arithmetic. Must not know PromQL.
"""

from dataclasses import dataclass
from typing import Final

SCRAPES: Final = 4
"""Scrapes in the shortest window: fewer, and `increase` sees nothing when one is missed."""
UPDATES: Final = 20
"""Updates in the shortest window: a share of fewer is luck."""
SHORT: Final = 12
"""How much shorter the second window of a pair is: it ends an alert soon after its cause."""
SPENT: Final = (0.02, 0.05, 0.10, 0.10)
"""Share of a run's whole budget that is gone when the alert of a pace fires, by pace."""
PACES: Final = (14.4, 6.0, 3.0, 1.0)
"""How many times faster than evenly the budget is spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a deployment states of its runs and of its Prometheus."""

    run_length_s: int = 86_400
    """How long a run usually takes."""
    scrape_s: int = 15
    """Between two scrapes."""
    update_s: int = 10
    """Between two updates of a policy."""
    budget: float = 0.05
    """Share of a run's updates that may be outside the trust region."""
    useful: float = 0.95
    """Share of a run's time in which it should make useful updates."""
    divisor: int = 1
    """All holds and look-backs are divided by this; 1 but in tests."""
    runs_job: str = "overwatch"
    """Scrape job of the page of runs."""
    collector_job: str = "overwatch-collector"
    """Scrape job of the collector's own page."""
    runbooks: str = ""
    """Where the runbooks can be read; an anchor is added. Without it an alert has the text itself."""
    grafana: str = "http://127.0.0.1:3000"
    """Where the boards are."""

    def __post_init__(self) -> None:
        for name in ("run_length_s", "scrape_s", "update_s", "divisor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is less than 1")
        if not 0 < self.budget * PACES[0] < 1:
            raise ValueError(f"budget {self.budget} is not above 0 and below 1/{PACES[0]:g}")
        if not 0 < self.useless * PACES[0] < 1:
            raise ValueError(f"useful {self.useful} is not below 1 and above 1 - 1/{PACES[0]:g}")

    @property
    def useless(self) -> float:
        """Share of a run's time that may bring no useful update."""
        return 1 - self.useful

    def at_least(self, seconds: float) -> int:
        """A window that holds enough scrapes and updates."""
        least = max(SCRAPES * self.scrape_s, UPDATES * self.update_s)
        return round(max(seconds / self.divisor, least))

    def hold(self, seconds: float) -> int:
        """How long something must be true."""
        return round(seconds / self.divisor)

    def pairs(self) -> tuple[tuple[float, int, int], ...]:
        """Pace, long and short window, fastest first."""
        longs = [spent * self.run_length_s / pace for spent, pace in zip(SPENT, PACES, strict=True)]
        return tuple(
            (pace, self.at_least(long), self.at_least(long / SHORT))
            for pace, long in zip(PACES, longs, strict=True)
        )


def span(seconds: int) -> str:
    """A duration as Prometheus writes it.

    >>> span(90), span(3600), span(7200), span(86400)
    ('90s', '1h', '2h', '1d')
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
