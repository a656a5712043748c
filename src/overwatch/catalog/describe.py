"""A row in words, for people and programs: what page, command and JSON show of it; and finding rows.

Pure; the one place that writes limits out.
"""

import difflib
from collections.abc import Sequence
from typing import Final

from overwatch.catalog.alias import Alias
from overwatch.catalog.libraries import aliases_of
from overwatch.catalog.libraries.base import Names
from overwatch.catalog.metric import Limit, Limits, Metric, Scope, Side
from overwatch.catalog.names import prometheus_name
from overwatch.catalog.presets import PRESETS
from overwatch.catalog.spelling import spelt

SIGNS: Final = {Side.ABOVE: ">", Side.AT_OR_ABOVE: "≥", Side.BELOW: "<", Side.AT_OR_BELOW: "≤"}

Stated = str | int | list[str] | dict[str, str] | list[dict[str, str]] | None


def describe(row: Metric) -> dict[str, Stated]:
    """Everything about a row but its arrows, ready for JSON; `None` where there is nothing to show."""
    return {
        "name": row.name,
        "asks": row.asks,
        "sdk": row.short,
        "prometheus": prometheus_name(row),
        "scope": row.scope.value,
        "kind": row.kind.value,
        "unit": row.unit,
        "label": row.label,
        "format": row.fmt,
        "precision": row.precision,
        "good": row.direction.value,
        "non_finite": row.non_finite.value,
        "limits": {name: limits_text(row.limits_for(name)) or "none" for name in PRESETS},
        "hold": f"{row.hold[0]} of {row.hold[1]} updates",
        "judged_by": f"the mean of {row.mean_of}" if row.mean_of > 1 else "each value",
        "fix": row.fix or None,
        "estimator": None if row.estimator is None else row.estimator.value,
        "moment": None if row.moment is None else row.moment.value,
        "cadence": row.every.value,
        "records": list(row.tele),
        "aliases": [_alias(alias) for alias in aliases_of(row)],
        "also_on_metrics": list(row.also),
        "attributes": dict(row.attributes),
    }


def limits_text(limits: Limits) -> str:
    """Both levels and sides: `warning > 0.015, critical > 0.03`; empty without limits."""
    parts = []
    for level in ("warning", "critical"):
        found = [limit_text(limit) for limit in level_of(limits, level)]
        if found:
            parts.append(f"{level} {' or '.join(found)}")
    return ", ".join(parts)


def level_of(limits: Limits, level: str) -> list[Limit]:
    """The limits of one level, `warning` or `critical`, of all sides."""
    found = (side.warning if level == "warning" else side.critical for side in limits.sides)
    return [limit for limit in found if limit is not None]


def limit_text(limit: Limit) -> str:
    """One limit: `> 0.015`, `> 4× own median`, `> 4× own median and 0.5`."""
    own = "× own median" if limit.relative else ""
    least = f" and {limit.value * limit.least:g}" if limit.least else ""
    return f"{SIGNS[limit.side]} {limit.value:g}{own}{least}"


def alias_text(alias: Alias) -> str:
    """`train/approx_kl` with attributes, estimator, moment, scale where they matter."""
    notes = alias_notes(alias)
    return f"{alias.name} ({', '.join(notes)})" if notes else alias.name


def alias_notes(alias: Alias) -> list[str]:
    """What differs about a library's number, and where its name means this."""
    notes = [f"{key}={word}" for key, word in alias.attributes.items()]
    notes += [] if alias.estimator is None else [alias.estimator.value]
    notes += [] if alias.moment is None else [alias.moment.value]
    notes += [] if alias.scale == 1.0 else [scale_text(alias.scale)]
    return [*notes, *(["only where the library is known"] if alias.is_bare else [])]


def scale_text(scale: float) -> str:
    """What becomes of a library's number.

    >>> scale_text(-1.0), scale_text(0.001), scale_text(-0.5)
    ('negated', 'divided by 1000', 'negated, divided by 2')
    """
    size = abs(scale)
    sized = "" if size == 1.0 else f"times {size:g}" if size > 1 else f"divided by {1 / size:g}"
    return ", ".join(word for word in ("negated" if scale < 0 else "", sized) if word)


def pairs_of(names: Names) -> list[tuple[str, Alias]]:
    """Short names of rows, each with a name that the library has for it."""
    return [(short, alias) for short, aliases in names.rows.items() for alias in aliases]


def source_text(names: Names) -> str:
    """Where a library's names come from: `verl 0.9.1, from source`."""
    version = "" if names.version is None else f" {names.version}"
    return f"{names.library.value}{version}, {'collected by a run' if names.is_run else 'from source'}"


def stated_names(names: Names) -> dict[str, object]:
    """A library's table, ready for JSON."""
    return {
        "library": names.library.value,
        "version": names.version,
        "collected_by": "run" if names.is_run else "source",
        "names": [{"row": short, **_alias(alias)} for short, alias in pairs_of(names)],
        "left": dict(names.left),
    }


def lookup(name: str, rows: Sequence[Metric]) -> tuple[Metric, ...]:
    """Rows that a word of any kind means: a name, short name, Prometheus name, alias, record or label."""
    wanted = name.strip()
    exact = tuple(row for row in rows if row.name == wanted)
    meant = {
        row.name for scope in Scope for row in spelt(wanted, [row for row in rows if row.scope is scope])
    }
    found = exact or tuple(row for row in rows if row.name in meant)
    # A name that means this in one library alone, or in another unit, is a spelling to look up too.
    return found or tuple(row for row in rows if any(alias.name == wanted for alias in aliases_of(row)))


def nearest(name: str, rows: Sequence[Metric]) -> list[str]:
    """At most three spellings that look like a word which no row knows."""
    known = {spelling for row in rows for spelling in (row.name, *_spellings(row), *row.tele)}
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)


def _spellings(row: Metric) -> tuple[str, ...]:
    return (row.short, prometheus_name(row), *(alias.name for alias in aliases_of(row)))


def _alias(alias: Alias) -> dict[str, str]:
    stated = {"name": alias.name, "library": alias.library.value, **alias.attributes}
    if alias.estimator is not None:
        stated["estimator"] = alias.estimator.value
    if alias.moment is not None:
        stated["moment"] = alias.moment.value
    if alias.scale != 1.0:
        stated["scale"] = f"{alias.scale:g}"
    if alias.is_bare:
        stated["only"] = "where the library is known"
    return stated
