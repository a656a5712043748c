"""WHAT is measured: one row per metric, by area; the seed stages; nothing that runs.

`ROWS` is the one truth. From a row follow its input names, its place in the snapshot, its
Prometheus name, its format and its limits; none of these is written down twice.
"""

from types import MappingProxyType
from typing import Final

from overwatch.catalog import env, machine, policy, run
from overwatch.catalog.metric import (
    NO_LIMITS,
    Direction,
    Fold,
    Kind,
    Limit,
    Limits,
    Metric,
    NonFinite,
    Scope,
    Side,
)
from overwatch.catalog.names import label_name, prometheus_name
from overwatch.catalog.policy import KL
from overwatch.catalog.stages import Stage, parse_stage

__all__ = [
    "BY_NAME",
    "CUSTOM_PREFIX",
    "KL",
    "NO_LIMITS",
    "ROWS",
    "Direction",
    "Fold",
    "Kind",
    "Limit",
    "Limits",
    "Metric",
    "NonFinite",
    "Scope",
    "Side",
    "Stage",
    "find",
    "label_name",
    "of_scope",
    "parse_stage",
    "prometheus_name",
]  # fmt: skip

ROWS: Final[tuple[Metric, ...]] = policy.ROWS + env.ROWS + machine.ROWS + run.ROWS

CUSTOM_PREFIX: Final = "overwatch.custom."
"""Names that no row knows travel under this prefix: shown, never judged."""

BY_NAME: Final = MappingProxyType({row.name: row for row in ROWS})
_BY_SHORT: Final = {(row.scope, row.short): row for row in ROWS}
_BY_ALIAS: Final = {alias: row for row in ROWS for alias in row.aliases}


def find(name: str, scope: Scope | None = None) -> Metric | None:
    """The row of a full name or an alias, or of a short name within `scope`; `None` if no row has it."""
    row = BY_NAME.get(name)
    if row is None and scope is not None:
        row = _BY_SHORT.get((scope, name))
    return row or _BY_ALIAS.get(name)


def of_scope(scope: Scope) -> tuple[Metric, ...]:
    """All rows of one scope, in catalogue order."""
    return tuple(row for row in ROWS if row.scope is scope)
