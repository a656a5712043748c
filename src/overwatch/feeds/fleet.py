"""The runs of many collectors as one list: worst first, the same run at two collectors shown as such.

Owns the rows, their order and their filter, which is the board's grammar with keys of its own. Rules: nothing
is merged or judged anew, each row is what one collector reports; a collector that does not answer is a row
with the reason, and no filter hides it. Pure: must not know how collectors are found or asked.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from overwatch.catalog.durations import duration
from overwatch.feeds.live import Listed
from overwatch.projection.filtering import COMPARE, Grammar, Term, parse_by
from overwatch.projection.text import safe, safe_or_none

SEVERITIES: Final = ("ok", "info", "warning", "critical")
AWAY: Final = "away"
"""State of the row of a collector that does not answer."""
EMPTY: Final = "empty"
"""State of the row of a collector that has no run."""
_CURRENT: Final = ("live", "slow", "catching_up", "paused", "stalled")
_AWAY_RANK: Final = 2.5
"""Between a warning and a critical: what does not answer may hide either."""
GRAMMAR: Final = Grammar(
    matched=("run", "task", "algo", "collector", "state"),
    compared=("update", "envs", "age", "criticals", "warnings"),
    ranked=("severity",),
    words={
        "state": (*_CURRENT, "stale", "silent", "lost", "ended", AWAY, EMPTY),
        "severity": SEVERITIES,
    },
    examples={
        "run": "ppo-7", "task": "digits", "algo": "ppo", "collector": "10.0.0.7", "state": "lost",
        "update": "100", "envs": "64", "age": "10", "criticals": "0", "warnings": "0", "severity": "warning",
    },
)  # fmt: skip
"""The keys of `overwatch fleet --filter`."""


class FleetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run as one collector reports it, or a collector without a run; what is not known is `None`."""

    collector: str
    """Its view API, `ws://HOST:PORT`."""
    run: str | None = None
    state: str
    """How fresh it is, as `Link.state`; `away` of a collector that does not answer, `empty` of one without a
    run."""
    outcome: str | None = None
    severity: str | None = None
    """The verdict's."""
    criticals: int | None = None
    """Open critical findings; `None` of a collector that does not report them."""
    warnings: int | None = None
    update: int | None = None
    envs: int | None = None
    task: str | None = None
    algo: str | None = None
    age: float | None = None
    """Of its newest data, seconds."""
    archived: bool = False
    text: str
    """The verdict, or why there is no run."""
    also_at: tuple[str, ...] = ()
    """Other collectors that list the same run."""
    moved_to: str | None = None
    """The one of these that has its newest data, where this one no longer receives any."""


COLUMNS: Final = (
    "",
    "run",
    "task",
    "algo",
    "state",
    "update",
    "envs",
    "crit",
    "warn",
    "collector",
    "verdict",
)
RIGHT: Final = frozenset(("update", "envs", "crit", "warn"))
"""Columns of numbers."""
_WORDS: Final = {"critical": "CRIT", "warning": "WARN", "info": "INFO", "ok": "OK"}


def fleet_rows(addresses: Iterable[str], listed: Iterable[Listed]) -> list[FleetRow]:
    """All rows, the worst first: by severity, then by open findings, then by names."""
    by_collector: dict[str, list[Listed]] = {address: [] for address in addresses}
    places: defaultdict[str, list[Listed]] = defaultdict(list)
    for one in listed:
        by_collector.setdefault(one.collector, []).append(one)
        if one.run is not None:
            places[one.run.run_id].append(one)
    rows = [
        _of_run(one, places)
        if one.run is not None
        else _of_collector(address, AWAY, one.reason or "no answer")
        for address, found in by_collector.items()
        for one in found
    ]
    rows += [
        _of_collector(address, EMPTY, "it has received no run")
        for address, found in by_collector.items()
        if not found
    ]
    return sorted(rows, key=_order)


def _of_collector(address: str, state: str, why: str) -> FleetRow:
    return FleetRow(collector=address, state=state, text=safe(why))


def _of_run(one: Listed, places: Mapping[str, Sequence[Listed]]) -> FleetRow:
    run = one.run
    if run is None:
        raise ValueError(f"{one.collector} lists no run here")
    same = places[run.run_id]
    newest = min(same, key=_staleness)
    is_left = newest.collector != one.collector and run.state not in _CURRENT
    return FleetRow(
        collector=one.collector,
        run=safe(run.run_id),
        state=safe(run.state),
        outcome=safe_or_none(run.outcome),
        severity=safe(run.severity),
        criticals=run.criticals,
        warnings=run.warnings,
        update=run.update,
        envs=run.n_envs,
        task=safe_or_none(run.task),
        algo=safe_or_none(run.algo),
        age=run.data_age_s,
        archived=run.archived,
        text=safe(run.text),
        also_at=tuple(other.collector for other in same if other.collector != one.collector),
        moved_to=newest.collector if is_left else None,
    )


def _staleness(one: Listed) -> tuple[bool, float]:
    """Of several collectors with a run, the least has its newest data."""
    run = one.run
    age = None if run is None else run.data_age_s
    return run is None or run.state not in _CURRENT, float("inf") if age is None else age


def _order(row: FleetRow) -> tuple[float, int, int, str, str]:
    """A run that moved is judged where it is now, so its old row comes last."""
    if row.state == AWAY:
        rank = _AWAY_RANK
    elif row.moved_to is not None or row.severity is None:
        rank = -1.0
    else:
        # A severity that this build does not know is not taken for a good one.
        rank = SEVERITIES.index(row.severity) if row.severity in SEVERITIES else _AWAY_RANK
    return -rank, -(row.criticals or 0), -(row.warnings or 0), row.run or "", row.collector


def matching(rows: Iterable[FleetRow], filter_text: str) -> list[FleetRow]:
    """Rows that meet every term, and those of collectors that do not answer.

    Raises `FilterError` where a term cannot be read.
    """
    terms = parse_by(filter_text, GRAMMAR)
    return [
        row for row in rows if row.state == AWAY or all(_meets(row, term) != term.negated for term in terms)
    ]


def _meets(row: FleetRow, term: Term) -> bool:
    """A row that has no answer to a term does not meet it."""
    match term.key:
        case None:
            words = (row.run, row.task, row.algo, row.collector, row.outcome, row.text)
            return term.values[0] in " ".join(word for word in words if word).lower()
        case "severity" if term.sign != "=":
            if row.severity not in SEVERITIES:
                return False
            compare: Callable[[float, float], bool] = COMPARE[term.sign]
            return compare(SEVERITIES.index(row.severity), SEVERITIES.index(term.values[0]))
        case "severity" | "state":
            return getattr(row, term.key) in term.values
        case "update" | "envs" | "age" | "criticals" | "warnings":
            value = getattr(row, term.key)
            return value is not None and COMPARE[term.sign](value, term.number)
        case _:
            word = getattr(row, term.key)
            return word is not None and any(value in word.lower() for value in term.values)


def cells(row: FleetRow) -> tuple[str, ...]:
    """A row as words, in the order of `COLUMNS`; what is not known is a dash."""
    age = "" if row.age is None else f" {duration(row.age, coarse=True)}"
    state = (row.outcome or row.state).upper().replace("_", " ")
    words = (row.run, row.task, row.algo, state + age)
    numbers = (row.update, row.envs, row.criticals, row.warnings)
    severity = "AWAY" if row.state == AWAY else _WORDS.get(row.severity or "", "–")
    return (
        severity,
        *(word or "–" for word in words),
        *("–" if number is None else f"{number:,}" for number in numbers),
        row.collector,
        described(row),
    )


def described(row: FleetRow) -> str:
    """The verdict, with where else the run is."""
    if row.moved_to is not None:
        return f"moved to {row.moved_to} · {row.text}"
    return f"also at {', '.join(row.also_at)} · {row.text}" if row.also_at else row.text
