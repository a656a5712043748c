"""What each finding means, how to confirm it and what to do: one text a code, the only place for it.

Owns the words; which codes there are is decided where findings are made. A row of the policy brings its own
text, from its question, its limits and its fix.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from overwatch.catalog import Scope, find
from overwatch.catalog.metric import Limit, Limits, Metric
from overwatch.catalog.runbooks import fleet, machines, policy, run, services, tower
from overwatch.catalog.runbooks.book import Runbook

__all__ = [
    "ALERTS",
    "ALL",
    "RUNBOOKS",
    "Runbook",
    "has_runbook",
    "row_code",
    "runbook",
    "runbook_of_row",
]

RUNBOOKS: Final[Mapping[str, Runbook]] = MappingProxyType(
    {entry.code: entry for area in (policy, fleet, machines, run, services) for entry in area.ENTRIES}
)
"""By code of a finding; single rows are not among them."""
ALERTS: Final[Mapping[str, Runbook]] = MappingProxyType({entry.code: entry for entry in tower.ENTRIES})
"""By code of an alert that no finding stands behind."""
ALL: Final[Mapping[str, Runbook]] = MappingProxyType({**RUNBOOKS, **ALERTS})
"""Both."""


_NO_FIX: Final = (
    "Compare it with KL, entropy and returns of the same updates; where those are well, watch it."
)


def row_code(row: Metric) -> str:
    """What a finding about one row of the policy is called."""
    return f"policy-{row.short.replace('_', '-')}"


def runbook_of_row(row: Metric) -> Runbook:
    """The text about one row that is beyond its limits."""
    needed, window = row.hold
    levels = [limits for limits in (row.limits, *row.presets.values()) if limits.warning or limits.critical]
    own = " Its limits are multiples of the run's own median." if any(map(_is_relative, levels)) else ""
    return Runbook(
        code=row_code(row),
        means=f"{row.asks} The answer was beyond its limit in {needed} of {window} updates.{own}",
        confirm=f"The sparkline of `{row.short}`; `overwatch catalog show {row.short}` gives its limits.",
        act=f"{row.fix[:1].upper()}{row.fix[1:]}." if row.fix else _NO_FIX,
    )


def runbook(code: str) -> Runbook | None:
    """Return the text about a finding; `None` for a code that no finding has."""
    if code in RUNBOOKS:
        return RUNBOOKS[code]
    short = code.removeprefix("policy-").replace("-", "_")
    row = find(short, Scope.POLICY) if code.startswith("policy-") else None
    return None if row is None else runbook_of_row(row)


def has_runbook(code: str) -> bool:
    """Whether there is a text."""
    return code in RUNBOOKS or code.startswith("policy-")


def _is_relative(limits: Limits) -> bool:
    return any(isinstance(level, Limit) and level.relative for level in (limits.warning, limits.critical))
