"""The list of runs, as a collector answers it: one line a run.

Frozen, versioned types only, as in the rest of this package. Must not know how a line was computed.
"""

import msgspec


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list of runs."""

    run_id: str
    newest: bool
    """It is the one that is shown where none is asked for."""
    task: str | None = None
    algo: str | None = None
    state: str
    """How fresh it is, as `Link.state`; `paused` or `stalled` where training does not go on."""
    outcome: str | None = None
    update: int | None = None
    n_envs: int | None = None
    severity: str
    """The verdict's."""
    text: str
    data_age_s: float | None = None
    time: float
    """The tick, Unix seconds."""
    archived: bool = False
    """It made room for others: what is shown is how it was then."""
    criticals: int | None = None
    """Open critical findings."""
    warnings: int | None = None
    """Open warnings."""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one collector, by id."""

    newest: str | None
    runs: tuple[RunLine, ...]
    schema_version: str | None = None
    """That of the collector's snapshots."""
