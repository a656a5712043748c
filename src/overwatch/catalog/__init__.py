"""WHAT is measured: one row per metric, by area; the seed stages; nothing that runs.

`ROWS` is the one truth. From a row follow its input names, its place in the snapshot, its
Prometheus name, its format and its limits; none of these is written down twice.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from overwatch.catalog import (
    critic,
    env,
    episodes,
    goodhart,
    gradients,
    language,
    machine,
    moves,
    policy,
    rewards,
    run,
    services,
)
from overwatch.catalog.alias import Alias, Estimator, Library, Moment
from overwatch.catalog.metric import (
    NO_LIMITS,
    Audience,
    Cadence,
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
from overwatch.catalog.names import label_name, plain_name, prometheus_name
from overwatch.catalog.policy import KL
from overwatch.catalog.stages import Stage, parse_stage

__all__ = [
    "BY_NAME",
    "CUSTOM_PREFIX",
    "KL",
    "NO_LIMITS",
    "ROWS",
    "Alias",
    "Audience",
    "Cadence",
    "Direction",
    "Estimator",
    "Fold",
    "Kind",
    "Library",
    "Limit",
    "Limits",
    "Metric",
    "Moment",
    "NonFinite",
    "Scope",
    "Side",
    "Stage",
    "find",
    "find_split",
    "label_name",
    "of_scope",
    "parse_stage",
    "plain_name",
    "prometheus_name",
]  # fmt: skip

_AREAS: Final = (
    policy, moves, critic, gradients, episodes, rewards, goodhart, language, env, machine, run, services,
)  # fmt: skip
ROWS: Final[tuple[Metric, ...]] = tuple(row for area in _AREAS for row in area.ROWS)

CUSTOM_PREFIX: Final = "overwatch.custom."
"""Names that no row knows travel under this prefix: shown, never judged."""

BY_NAME: Final = MappingProxyType({row.name: row for row in ROWS})
_BY_SHORT: Final = {(row.scope, row.short): row for row in ROWS}
_BY_ALIAS: Final = {
    (row.scope, alias.name): row for row in ROWS for alias in row.aliases if not alias.attributes
}
_SPLIT: Final = tuple((alias, row) for row in ROWS for alias in row.aliases if alias.attributes)


def find(name: str, scope: Scope | None = None) -> Metric | None:
    """The row of a full name or an alias, or of a short name within `scope`; `None` if no row has it.

    Without a scope, an alias that rows of several scopes have means none of them.
    """
    row = BY_NAME.get(name)
    if row is None and scope is not None:
        row = _BY_SHORT.get((scope, name)) or _BY_ALIAS.get((scope, name))
    if row is None and scope is None:
        meant = [found for one in Scope if (found := _BY_ALIAS.get((one, name))) is not None]
        row = meant[0] if len(meant) == 1 else None
    return row


def find_split(name: str, attributes: Mapping[str, object]) -> Metric | None:
    """The row of an alias that several rows have, each with attributes of its own on the points."""
    for alias, row in _SPLIT:
        if alias.name == name and all(attributes.get(key) == word for key, word in alias.attributes.items()):
            return row
    return None


@cache
def of_scope(scope: Scope) -> tuple[Metric, ...]:
    """All rows of one scope, in catalogue order."""
    return tuple(row for row in ROWS if row.scope is scope)
