"""What can be searched in a story, as rows of one shape: findings, events, statuses of envs.

Owns the filter of rows, which is the board's grammar with keys of its own, and how rows are written. As CSV a
spreadsheet takes them for nothing but text and numbers, as OWASP advises against CSV injection: a text that
begins with a character that may start a formula gets an apostrophe before it, also one that has apostrophes
already, so that taking one away gives back the text; a text that holds any separator is quoted; numbers stay
as they are. Pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from overwatch.analyse.findings import SEVERITIES, Found
from overwatch.analyse.run_history import EnvHistory, RunHistory
from overwatch.catalog.durations import duration
from overwatch.projection.filtering import COMPARE, STATUSES, Grammar, Term, parse_by
from overwatch.snapshot import FeedLine

Value: TypeAlias = str | float | int | None
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_QUOTED: Final = re.compile('[",;|\t\r\n]|^ | $')

KINDS: Final = ("finding", "event", "env")
_BAD: Final = {"crashed": "critical", "diverging": "warning", "degraded": "warning", "stalled": "warning"}
GRAMMAR: Final = Grammar(
    matched=("what", "kind", "env", "gpu", "slot", "seed", "status"),
    compared=("at", "lasted", "update", "score"),
    ranked=("severity",),
    words={
        "what": KINDS,
        "severity": SEVERITIES,
        "status": (*STATUSES, "open", "cleared", "acknowledged"),
    },
    examples={
        "what": "finding", "kind": "crash", "env": "3", "gpu": "0", "slot": "r0c0", "seed": "3-r0c0-1",
        "status": "crashed", "at": "30", "lasted": "10", "update": "100", "score": "3", "severity": "warning",
    },
)  # fmt: skip
"""The keys of `overwatch query`."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row; what it has no answer to is `None`."""

    run: str
    what: str
    """`finding`, `event` or `env`."""
    at: float
    """Seconds since the run began."""
    time: str
    """The same in UTC, ISO 8601."""
    lasted: float | None = None
    """Seconds; of findings and envs."""
    severity: str
    kind: str
    """A finding's code, an event's kind, an env's status."""
    status: str | None = None
    """`open` (at the end), `cleared` or `acknowledged`; an env's status."""
    env: int | None = None
    gpu: str | None = None
    slot: str | None = None
    seed: str | None = None
    update: int | None = None
    score: float | None = None
    """Of an env, the worst while it was in this status."""
    text: str
    hint: str | None = None
    fields: dict[str, str] = {}

    @property
    def clock(self) -> str:
        """Time of the run: `1:02.5`, `1:00:02.5`."""
        minutes, rest = divmod(max(0.0, self.at), 60)
        hours, minutes = divmod(int(minutes), 60)
        return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"

    @property
    def about(self) -> str:
        """The env, the lane and the slot: `env 6 gpu1`; empty for the run as a whole."""
        env = None if self.env is None else f"env {self.env}"
        return " ".join(word for word in (env, self.gpu, self.slot) if word)

    @property
    def ending(self) -> str:
        """What to add to a finding that never cleared: it was the run, or its recording, that ended."""
        return ", open at the end" if self.status == "open" else ""


COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(Row))


def rows(run_history: RunHistory, what: tuple[str, ...] = KINDS) -> list[Row]:
    """All rows of a run of some kinds, in order of time."""
    found: list[Row] = []
    if "finding" in what:
        found += (_finding(run_history, one) for one in run_history.findings)
    if "event" in what:
        found += (_event(run_history, line) for line in run_history.facts.lines)
    if "env" in what:
        found += (row for env in run_history.envs.values() for row in _env(run_history, env))
    return sorted(found, key=lambda row: row.at)


def moment(run_history: RunHistory, seconds: float) -> str:
    """A time of the run in UTC."""
    utc = datetime.fromtimestamp(run_history.began + seconds, UTC).isoformat(timespec="milliseconds")
    return utc.replace("+00:00", "Z")


def _finding(run_history: RunHistory, found: Found) -> Row:
    finding = found.finding
    about = finding.subject
    env = int(about.id) if about.scope == "env" and about.id and about.id.isdecimal() else None
    status = "acknowledged" if finding.acknowledged else "open" if found.open else "cleared"
    return Row(
        run=run_history.run.run_id,
        what="finding",
        at=round(found.since, 3),
        time=moment(run_history, found.since),
        lasted=round(found.until - found.since, 3),
        severity=found.severity,
        kind=finding.code,
        status=status,
        env=env,
        gpu=about.id if about.scope == "gpu" else _lane(run_history, env),
        update=found.update,
        text=finding.message,
        hint=finding.hint or None,
        fields={"factors": "; ".join(finding.factors)} if finding.factors else {},
    )


def _event(run_history: RunHistory, line: FeedLine) -> Row:
    at = line.time - run_history.began
    return Row(
        run=run_history.run.run_id,
        what="event",
        at=round(at, 3),
        time=moment(run_history, at),
        severity=line.severity,
        kind=line.kind,
        env=line.env_id,
        gpu=line.gpu_id or _lane(run_history, line.env_id),
        slot=line.slot,
        seed=line.seed_id,
        text=line.message,
        fields=line.fields,
    )


def _env(run_history: RunHistory, env: EnvHistory) -> Iterator[Row]:
    for spell in env.statuses:
        yield Row(
            run=run_history.run.run_id,
            what="env",
            at=round(spell.start, 3),
            time=moment(run_history, spell.start),
            lasted=round(spell.length, 3),
            severity=_BAD.get(spell.word, "info"),
            kind=spell.word,
            status=spell.word,
            env=env.env_id,
            gpu=_lane(run_history, env.env_id),
            score=round(spell.score, 3),
            text="; ".join(spell.reasons) or f"{spell.word} for {spell.length:.0f} s",
        )


def _lane(run_history: RunHistory, env_id: int | None) -> str | None:
    env = None if env_id is None else run_history.envs.get(env_id)
    return None if env is None or env.last is None else env.last.gpu_id


def matching(found: Iterable[Row], filter_text: str) -> Iterator[Row]:
    """Rows that meet every term; raises `FilterError` where a term cannot be read."""
    terms = parse_by(filter_text, GRAMMAR)
    return (row for row in found if all(_meets(row, term) != term.negated for term in terms))


def _meets(row: Row, term: Term) -> bool:
    """A row that has no answer to a term does not meet it."""
    match term.key:
        case None:
            return term.values[0] in _text(row)
        case "env":
            return row.env is not None and any(low <= row.env <= high for low, high in term.ranges)
        case "severity" if term.sign != "=":
            compare: Callable[[float, float], bool] = COMPARE[term.sign]
            return compare(SEVERITIES.index(row.severity), SEVERITIES.index(term.values[0]))
        case "at" | "lasted" | "update" | "score":
            value = getattr(row, term.key)
            return value is not None and COMPARE[term.sign](value, term.number)
        case "gpu":
            return row.gpu is not None and _is_lane(row.gpu.lower(), term.values)
        case "kind":
            return any(value in row.kind.lower() for value in term.values)
        case _:
            word = getattr(row, term.key)
            return word is not None and word.lower() in term.values


def _is_lane(lane: str, values: tuple[str, ...]) -> bool:
    """By its name or by the number at its end."""
    number = lane[len(lane.rstrip("0123456789")) :]
    return lane in values or (bool(number) and number in values)


def _text(row: Row) -> str:
    words = (row.kind, row.text, row.hint, row.gpu, row.slot, row.seed, *row.fields.values())
    return " ".join(word for word in words if word).lower()


def csv_line(values: Iterable[Value], *, is_guarded: bool = True) -> str:
    r"""One line without its end; a missing value is empty. `is_guarded` keeps a formula from being one.

    >>> csv_line(["=1+1", "a,b", -1.5, 3, None, "'-x"])
    '\'=1+1,"a,b",-1.5,3,,\'\'-x'
    """
    return ",".join(_cell(value, is_guarded=is_guarded) for value in values)


def _cell(value: Value, *, is_guarded: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = f"'{value}" if is_guarded and _FORMULA.match(value) else value
    if not _QUOTED.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def as_text(found: Iterable[Row]) -> Iterator[str]:
    """A line each, for a person."""
    for row in found:
        words = " ".join((row.text, *(f"{name}={value}" for name, value in row.fields.items())))
        lasted = "" if row.lasted is None else f" for {duration(row.lasted)}{row.ending}"
        yield f"{row.clock:>9}  {row.severity:8}  {row.kind:20}  {row.about:18}  {words}{lasted}"


def as_json(found: Iterable[Row]) -> Iterator[str]:
    """A line each, for other programs."""
    return (msgspec.json.encode(row).decode() for row in found)


def as_csv(found: Iterable[Row]) -> Iterator[str]:
    """A header, then a line each."""
    yield csv_line(COLUMNS)
    yield from (csv_line(cells(row)) for row in found)


def cells(row: Row) -> list[Value]:
    """The values of a row, in the order of `COLUMNS`; its fields as JSON."""
    return [*msgspec.structs.astuple(row)[:-1], msgspec.json.encode(row.fields).decode()]


FORMATS: Final = {"text": as_text, "json": as_json, "csv": as_csv}
"""How rows are written."""
