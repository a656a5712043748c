"""Envs, or lanes, over the whole run, as a view may know it: a row each, a character a column of time.

An answer of its own, which no recording of snapshots holds. Times are Unix seconds of the run's own clock.
"""

from typing import Final

import msgspec

HEAT_VERSION: Final = "1.0"
MOST_COLUMNS: Final = 512
OF: Final = ("env", "gpu")
SORTS: Final = ("id", "worst")


class HeatQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of it is wanted."""

    of: str = "env"
    """`env` or `gpu`."""
    since: float | None = None
    """From when, Unix seconds."""
    until: float | None = None
    columns: int = 256
    """Most columns."""
    offset: int = 0
    """Rows that come before the first."""
    rows: int = 256
    """Most rows."""
    sort: str = "id"
    """`id`, or `worst`: by the worst cell of the time that is shown, then by how many are as bad."""
    filter: str = ""
    """Which envs, in the board's words; all without. Only envs that are there pass one."""


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One env or lane."""

    id: int | str
    """Number of the env, or name of the lane."""
    group: str | None = None
    """Lane of the env, or machine of the lane; absent for an env that was removed."""
    cells: str
    """One character a column, the oldest first; `legend` has the words."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one character means."""

    text: str
    """e.g. `score up to 3`, `crashed`, `IO-BOUND`."""
    mark: str = ""
    """`!!` critical, `!` warning, `?` not known, none = as it should be."""


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    schema_version: str = HEAT_VERSION
    run_id: str
    of: str
    since: float | None = None
    """When the first column begins; absent where nothing was judged."""
    until: float | None = None
    """When the last one ends: somewhat later than the newest judgement, which lies in it."""
    step_s: float | None = None
    """How long a column is."""
    columns: int = 0
    total: int = 0
    """Rows that there are, shown or not."""
    offset: int = 0
    """Rows that come before the first that is shown."""
    let_go: int = 0
    """Envs that left long ago, whose rows are not held any more."""
    rows: tuple[HeatRow, ...] = ()
    legend: dict[str, Cell] = {}
    """By character: every one that there may be, worse ones later."""


decode: Final = msgspec.json.Decoder(HeatMap).decode
"""An answer from JSON; raises `msgspec.MsgspecError`."""
