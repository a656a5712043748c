"""What is computed from what: rows, events, findings and fields, with the arrows that rows name.

Rules: an arrow is written once, at the row that depends or at the row that feeds; pure.
"""

from collections.abc import Iterable, Mapping

from overwatch.catalog.metric import Metric, Scope
from overwatch.catalog.runbooks import row_code


def arrows(rows: Iterable[Metric]) -> dict[str, tuple[str, ...]]:
    """What each name feeds, in catalogue order; a policy row with limits feeds its own finding."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.name, []).extend(row.feeds)
        if row.scope is Scope.POLICY and has_limits(row):
            found[row.name].append(f"finding:{row_code(row)}")
        for source in row.depends_on:
            found.setdefault(source, []).append(row.name)
    return {name: tuple(dict.fromkeys(fed)) for name, fed in found.items()}


def has_limits(row: Metric) -> bool:
    """Whether a row is judged under any preset."""
    judged = (row.limits, *row.presets.values())
    return any(side.warning or side.critical for limits in judged for side in limits.sides)


def backwards(fed: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """What each name is computed from, for the arrows of `arrows`."""
    found: dict[str, list[str]] = {}
    for source, targets in fed.items():
        for target in targets:
            found.setdefault(target, []).append(source)
    return {name: tuple(dict.fromkeys(sources)) for name, sources in found.items()}
