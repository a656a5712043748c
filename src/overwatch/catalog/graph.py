"""What is computed from what: rows, events, findings and fields as a graph, with the arrows that rows name.

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


def reach(name: str, step: Mapping[str, Iterable[str]]) -> list[tuple[int, str]]:
    """All that is reached from a name, with its distance, depth first; each name once."""
    found: list[tuple[int, str]] = []
    seen = {name}

    def walk(here: str, depth: int) -> None:
        """Append what follows from a name, deeper by one."""
        for after in step.get(here, ()):
            if after not in seen:
                seen.add(after)
                found.append((depth, after))
                walk(after, depth + 1)

    walk(name, 1)
    return found


def find_cycle(fed: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names that feed one another in a circle, the first one again at the end; empty where there is none."""
    done: set[str] = set()

    def walk(here: str, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the first loop below a node; empty where there is none."""
        if here in path:
            return (*path[path.index(here) :], here)
        if here in done:
            return ()
        for after in fed.get(here, ()):
            circle = walk(after, (*path, here))
            if circle:
                return circle
        done.add(here)
        return ()

    return next((circle for name in fed if (circle := walk(name, ()))), ())
