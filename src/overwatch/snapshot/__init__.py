"""WHAT a view may know: frozen, ordered, versioned types only.

A snapshot is complete: already ranked, grouped, cut and judged. A view never sorts, sums or judges.
Fields whose source is not there are present and `None`; lists that nothing filled are empty.
Must not know how any of it was computed. Times are Unix seconds, durations seconds, sizes bytes.
"""

from typing import Final

import msgspec

from overwatch.snapshot.board import (
    Aggregates,
    Best,
    Board,
    Detail,
    Env,
    Group,
    LaneAggregates,
    Reason,
    SeedEvent,
    Slot,
    Trend,
)
from overwatch.snapshot.findings import FeedLine, Finding, Subject
from overwatch.snapshot.policy import Limit, Parting, Reading
from overwatch.snapshot.run import (
    Baseline,
    Exemplar,
    Link,
    Metric,
    Modes,
    PhaseTimes,
    Run,
    Source,
    Throughput,
    Verdict,
)
from overwatch.snapshot.runs import RunLine, RunList
from overwatch.snapshot.services import Sample, Service, Tally, Total
from overwatch.snapshot.system import Anomaly, Bound, Host, Lane, Process, Spread, System

__all__ = [
    "SCHEMA_VERSION",
    "Aggregates",
    "Anomaly",
    "Baseline",
    "Best",
    "Board",
    "Bound",
    "Detail",
    "Env",
    "Exemplar",
    "FeedLine",
    "Finding",
    "Group",
    "Host",
    "Lane",
    "LaneAggregates",
    "Limit",
    "Link",
    "Metric",
    "Modes",
    "Parting",
    "PhaseTimes",
    "Process",
    "Reading",
    "Reason",
    "Run",
    "RunLine",
    "RunList",
    "Sample",
    "SeedEvent",
    "Service",
    "Slot",
    "Snapshot",
    "Source",
    "Spread",
    "Subject",
    "System",
    "Tally",
    "Throughput",
    "Timing",
    "Total",
    "Trend",
    "Verdict",
    "View",
]

SCHEMA_VERSION: Final = "1.4"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader wants to see. `View()` is what the recorder writes and what "equal" means."""

    rows: int = 256
    """Most env rows in the snapshot; the worst come first."""
    env_id: int | None = None
    """The env whose detail is shown."""
    sort: str = "anomaly"
    """What the rows are ordered by: `anomaly`, `env`, `return`, `reward`, `metric` or `fps`."""
    descending: bool = True
    filter: str = ""
    """Which envs the board shows, e.g. `status=degraded gpu=0`; all without."""
    grouped: bool = True
    """Rows lane by lane; otherwise in one order over all lanes."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Render times; filled by the reader, absent in recordings."""

    last_render_ms: float | None = None
    mean_render_ms: float | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one view may show of one run at one tick."""

    schema_version: str = SCHEMA_VERSION
    time: float
    """The tick, Unix seconds on the stamp clock."""
    run: Run
    link: Link
    verdict: Verdict
    policy: dict[str, Reading] = {}
    """By short name; a row of the catalogue that is not here is absent."""
    parting: Parting | None = None
    """How the proxy return and the true one part; absent where neither is reported."""
    services: dict[str, Reading] = {}
    """What services report, by full name; of several processes the first by role and rank, the others with
    `#role/rank` behind the name."""
    processes: tuple[Service, ...] = ()
    """Processes of services, worst first."""
    tallies: tuple[Tally, ...] = ()
    """What processes count by labels, by name, process and labels."""
    totals: dict[str, Total] = {}
    """The same over all processes and labels, by name."""
    system: System = System()
    board: Board = Board()
    envs: tuple[Env, ...] = ()
    detail: Detail | None = None
    aggregates: Aggregates = Aggregates()
    findings: tuple[Finding, ...] = ()
    feed: tuple[FeedLine, ...] = ()
    """Oldest first."""
    feed_rate: float | None = None
    counters: dict[str, float] = {}
    """Run counters by short catalogue name; present at 0 from the run's first snapshot."""
    phases: tuple[PhaseTimes, ...] = ()
    """The phases that took most of the run's time, at most eight, by name."""
    timing: Timing | None = None
