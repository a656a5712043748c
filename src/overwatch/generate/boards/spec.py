"""What a dashboard shows, as data: panels, queries, words and steps of colour.

Rules: no name of a Grafana plugin and no JSON here, so what a board shows can be read and checked without
them. Must not know how a panel is drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from overwatch.generate.boards.uids import Board

GRID: int = 24
"""Columns of a dashboard."""


class Look(Enum):
    """How a panel shows its numbers."""

    NUMBER = "number"
    """The newest value, large."""
    LINES = "lines"
    """Values over time."""
    STATES = "states"
    """Words over time, one lane a series."""
    TABLE = "table"
    """One row a thing, the worst first."""
    BARS = "bars"
    """One bar a thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a number stands for."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From `at` on (`None`: from below) values have a colour."""

    at: float | None
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to Prometheus; in a table the name of its column."""

    expr: str
    name: str = ""
    """Legend of its series, with labels in double braces."""
    has_exemplars: bool = False
    """Whether its series name traces, which are then marked beside the lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How one query's column of a table is shown."""

    unit: str = "short"
    decimals: int | None = None
    steps: tuple[Step, ...] = ()
    words: Mapping[int, Word] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    about: str
    """One sentence for somebody who is on call and knows nothing of reinforcement learning."""
    look: Look
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    """Of 24."""
    height: int = 8
    decimals: int | None = None
    steps: tuple[Step, ...] = ()
    """Colours by value; on lines they are drawn as limits."""
    words: Mapping[int, Word] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    """Of a table: one a query, in the same order."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Of a table: labels that are columns, and what each is called."""
    sort: str | None = None
    """Of a table: the column with the worst first, largest on top."""
    stacked: bool = False
    top: float | None = None
    """Highest value there can be."""
    to: Board | None = None
    """Where a click on a run leads."""

    def __post_init__(self) -> None:
        if not 1 <= self.width <= GRID:
            raise ValueError(f"{self.title}: width {self.width} is not within 1 and {GRID}")
        if not self.queries:
            raise ValueError(f"{self.title}: a panel needs a query")
        if self.look is Look.TABLE and len(self.columns) != len(self.queries):
            raise ValueError(f"{self.title}: {len(self.columns)} columns for {len(self.queries)} queries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What a reader chooses at the top."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; it answers one question."""

    board: Board
    title: str
    asks: str
    """The question."""
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]
    alerts: str
    """Which alerts are marked on the time axis, as a selector of `ALERTS`."""
    since: str = "now-1h"
