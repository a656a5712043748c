"""What is wrong with a catalogue: rules that names, units, limits, aliases, arrows and records keep.

Pure, and of any rows, so that a test can break each rule. What only higher layers know (events, fields of the
snapshot) comes in as `Surroundings`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from overwatch.catalog import records
from overwatch.catalog.alias import UNTABLED, Alias, Library
from overwatch.catalog.bounds import BoundState
from overwatch.catalog.graph import arrows, has_limits
from overwatch.catalog.libraries import aliases_of
from overwatch.catalog.libraries.base import Names
from overwatch.catalog.metric import Kind, Limit, Metric, Scope
from overwatch.catalog.names import prometheus_name
from overwatch.catalog.presets import DEFAULT, PRESETS
from overwatch.catalog.runbooks import RUNBOOKS, row_code
from overwatch.catalog.tallies import SERVICES

JUDGED: Final = frozenset({Scope.POLICY, *SERVICES})
"""Scopes whose values are judged by limits, one by one; envs are judged by factors, machines by bounds."""
LABEL_CELLS: Final = 8
BOUNDS: Final = frozenset(state.label for state in BoundState)
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_ENDINGS: Final = frozenset({"count", "sum", "total", "info"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What rows may refer to and cannot know."""

    events: Mapping[str, Collection[str]]
    """Fields of each event, by its tag."""
    is_field: Callable[[str], bool]
    """Whether a path leads to something in the snapshot."""


def problems(rows: Sequence[Metric], around: Surroundings) -> list[str]:
    """Everything that is wrong, one sentence each; empty for a catalogue in order."""
    found = [*_twice(rows), *_places(rows, around)]
    for row in rows:
        found += [f"{row.name}: {wrong}" for wrong in _row(row)]
    fed = arrows(rows)
    ends = dict.fromkeys(end for source, targets in fed.items() for end in (source, *targets))
    known = {row.name for row in rows} | {f"finding:{row_code(row)}" for row in rows}
    found += [f"{end!r} is depended on or fed, but nothing is called so" for end in ends
              if end not in known and not _resolves(end, around)]  # fmt: skip
    circle = find_cycle(fed)
    if circle:
        found.append(f"rows feed one another in a circle: {' > '.join(circle)}")
    return found


def _row(row: Metric) -> Iterator[str]:
    words = re.split(r"[._]", row.name)
    if not _NAME.fullmatch(row.name):
        yield "a name is dotted, lower-case, of letters, digits and _"
    if "ratio" in words:
        yield "translation to Prometheus eats the word 'ratio'"
    if words[-1] in _ENDINGS:
        yield f"Prometheus gives a last word {words[-1]!r} a meaning"
    if not row.asks.endswith("?"):
        yield "it does not ask a question"
    if not 0 < len(row.label) <= LABEL_CELLS:
        yield f"its label has {len(row.label)} cells, use 1 to {LABEL_CELLS}"
    if row.mean_of < 1 or not 0 < row.hold[0] <= row.hold[1]:
        yield f"it is judged by the mean of {row.mean_of} with a hold of {row.hold[0]} in {row.hold[1]}"
    if row.chooses is not None and row.chooses not in PRESETS:
        yield f"it chooses {row.chooses!r}, and no preset is called so"
    yield from _unit(row)
    yield from _limits(row)


def _unit(row: Metric) -> Iterator[str]:
    if row.unit.count("{") != row.unit.count("}") or not row.unit:
        yield f"{row.unit!r} is no UCUM unit"
    if row.unit != "1" or row.kind is Kind.STATE:
        return
    if row.fmt.startswith("+"):
        yield "unit 1 is for shares of 0 to 1, which have no sign"
    if any(not limit.relative and not 0 <= limit.value <= 1 for limit in _all_limits(row)):
        yield "unit 1 is for shares of 0 to 1, and a limit lies outside"


def _limits(row: Metric) -> Iterator[str]:
    unknown = [name for name in row.presets if name not in PRESETS or name == DEFAULT]
    if unknown:
        yield f"no preset beside {DEFAULT!r} is called {', '.join(map(repr, unknown))}"
    if has_limits(row) and row.scope not in JUDGED:
        yield f"nothing judges the limits of scope {row.scope.value}"
    for limits in (row.limits, *row.presets.values()):
        for side in limits.sides:
            warning, critical = side.warning, side.critical
            if warning is None or critical is None:
                continue
            if warning.relative is not critical.relative:
                yield "one limit is relative and the other is not"
            elif warning.side.crossed(warning.value, critical.value):
                yield f"critical at {critical.value:g} comes before warning at {warning.value:g}"


def _all_limits(row: Metric) -> list[Limit]:
    sides = (side for limits in (row.limits, *row.presets.values()) for side in limits.sides)
    return [limit for side in sides for limit in (side.warning, side.critical) if limit is not None]


def _twice(rows: Sequence[Metric]) -> Iterator[str]:
    """Names that mean two things."""
    names = [("name", row.name) for row in rows]
    names += [("Prometheus name", name) for row in rows for name in (prometheus_name(row), *row.also)]
    names += [(f"short name of scope {row.scope.value}", row.short) for row in rows]
    for (kind, name), n in Counter(names).items():
        if n > 1:
            yield f"{n} rows have the {kind} {name!r}"
    full = {row.name for row in rows}
    shorts = {(row.scope, row.short): row.name for row in rows}
    spelt: dict[tuple[Scope, str, tuple[tuple[str, str], ...]], set[str]] = {}
    for row in rows:
        for alias in aliases_of(row):
            if alias.name in full:
                yield f"{row.name}: its alias {alias.name!r} is the name of a row"
            if alias.is_bare:
                continue
            meaning = row.name if alias.scale == 1.0 else f"{row.name} × {alias.scale:g}"
            spelt.setdefault((row.scope, alias.name, tuple(alias.attributes.items())), set()).add(meaning)
            if shorts.get((row.scope, alias.name), row.name) != row.name:
                yield f"{row.name}: its alias {alias.name!r} is the short name of another row"
    for (_scope, name, _attributes), meant in spelt.items():
        if len(meant) > 1:
            stated = " and ".join(sorted(meant))
            yield f"the alias {name!r} means {stated}; of all but one it is `is_bare`"


def library_problems(tables: Sequence[Names], rows: Sequence[Metric]) -> list[str]:
    """Everything that is wrong with the tables of libraries, one sentence each."""
    counted = Counter(names.library for names in tables)
    found = [f"{library.value} has {counted[library]} tables, not one" for library in Library
             if counted[library] != (library not in UNTABLED)]  # fmt: skip
    shorts = {row.short for row in rows if row.scope is Scope.POLICY}
    for names in tables:
        found += [f"{names.library.value}: {wrong}" for wrong in _table(names, shorts)]
    return [*found, *_meant_otherwise(tables)]


def _meant_otherwise(tables: Sequence[Names]) -> Iterator[str]:
    """Names that two libraries mean otherwise, and that one claims for everybody."""
    meant: dict[str, dict[tuple[str, float], list[Alias]]] = {}
    for names in tables:
        for short, aliases in names.rows.items():
            for alias in aliases:
                meant.setdefault(alias.name, {}).setdefault((short, alias.scale), []).append(alias)
    for name, meanings in meant.items():
        claimed = [alias.library.value for of in meanings.values() for alias in of if not alias.is_bare]
        if len(meanings) > 1 and claimed:
            stated = " and ".join(f"{short} × {scale:g}" for short, scale in meanings)
            yield f"{name!r} means {stated}: let it be `is_bare` in {', '.join(claimed)}"


def _table(names: Names, shorts: Collection[str]) -> Iterator[str]:
    if names.is_run and names.version is None:
        yield "its names were collected by running it, and its version is not there"
    if not any(names.rows.values()):
        yield "it names no row"
    for short in names.rows.keys() - shorts:
        yield f"no row of the policy is called {short!r}"
    meant = Counter(alias.name for aliases in names.rows.values() for alias in aliases)
    for name, n in meant.items():
        if n > 1:
            yield f"{name!r} is there {n} times"
        if name in names.left:
            yield f"{name!r} is a row's and left out"
    for alias in (alias for aliases in names.rows.values() for alias in aliases):
        if alias.library is not names.library:
            yield f"{alias.name!r} is a name of {alias.library.value}"
        if not alias.scale or not math.isfinite(alias.scale):
            yield f"{alias.name!r} has the scale {alias.scale}"
    for name, reason in names.left.items():
        if not reason:
            yield f"{name!r} is left out without a reason"


def _places(rows: Sequence[Metric], around: Surroundings) -> Iterator[str]:
    """Records that live nowhere, in two places, or somewhere that is not there."""
    reported = [record for row in rows for record in row.tele]
    known = set(records.ids())
    for record in known - set(reported) - set(records.ELSEWHERE):
        yield f"{record} lives nowhere: name it in a row or in records.py"
    for record in set(reported) & set(records.ELSEWHERE):
        yield f"{record} lives in a row and in records.py"
    for record in (set(reported) | set(records.ELSEWHERE)) - known - records.SEED_ONLY:
        yield f"{record} is no record"
    for record, place in records.ELSEWHERE.items():
        match place:
            case records.InEvent():
                if place.field not in around.events.get(place.tag, ()):
                    yield f"{record}: no event {place.tag!r} has a field {place.field!r}"
            case records.InField():
                if not around.is_field(place.path):
                    yield f"{record}: no field of the snapshot is at {place.path!r}"
            case records.StruckOut():
                pass
            case _:
                assert_never(place)


def _resolves(end: str, around: Surroundings) -> bool:
    kind, _, name = end.partition(":")
    match kind:
        case "event":
            return name in around.events
        case "field":
            return around.is_field(name)
        case "bound":
            return name in BOUNDS
        case "finding":
            return name in RUNBOOKS
        case _:
            return False


def find_cycle(fed: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names that feed one another in a circle, the first one again at the end; empty where there is none."""
    done: set[str] = set()

    def walk(here: str, path: tuple[str, ...]) -> tuple[str, ...]:
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
