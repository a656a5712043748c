"""`history`: from a run's past to the answer. Only selects, decimates and formats; cheap and pure."""

import math
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec
import numpy as np

from overwatch.catalog import BY_NAME, NO_LIMITS, Direction, Metric, Scope, key_of, name_of, of_scope
from overwatch.events import Origin
from overwatch.projection.policy import limit_text, scale_of, shown_as, status_of, text_of
from overwatch.projection.text import safe, safe_fields
from overwatch.snapshot import Reading, Snapshot
from overwatch.snapshot.history import MOST_CURVES, About, Curve, History, HistoryQuery, Line, Moment
from overwatch.state.arrays import median
from overwatch.state.past import Line as Series
from overwatch.state.past import Mark, Past, kind_of
from overwatch.state.policy import MEDIAN_NEEDS
from overwatch.state.run import RunState

_CUSTOM: Final = ".4g"
_LARGE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
"""Sizes that readings of machines are shown in."""
_READINGS: Final = {row.short: row for scope in (Scope.GPU, Scope.HOST) for row in of_scope(scope)}


class _Named(NamedTuple):
    """A number of the past."""

    name: str
    """As the answer calls it."""
    key: str
    """As the past does."""
    full: str
    """As the catalogue does, or the trainer."""
    rank: int | None


def history(state: RunState, past: Past, query: HistoryQuery) -> History:
    """What was asked for, of one run."""
    known = _named(past)
    wanted = [one for one in known if not query.names or any(_fits(one.name, name) for name in query.names)]
    begins = [line.first_at for line in past.lines.values()]
    ends = [line.at[-1] for line in past.lines.values() if line.at]
    return History(
        run_id=state.origin.run_id,
        since=min(begins) / 1e9 if begins else None,
        until=max(ends) / 1e9 if ends else None,
        names=tuple(one.name for one in known),
        cut={safe(_short(name)): count for name, count in past.cut.items()},
        left_out=tuple(one.name for one in wanted[MOST_CURVES:]),
        curves=tuple(_curve(state, one, past.lines[one.key], query) for one in wanted[:MOST_CURVES]),
        moments=tuple(
            Moment(
                code=mark.code,
                severity=mark.severity,
                subject=None if mark.subject is None else f"{mark.scope} {safe(mark.subject)}",
                since=mark.since / 1e9,
                cleared_at=None if mark.cleared_at is None else mark.cleared_at / 1e9,
                message=safe(mark.message),
            )
            for mark in past.marks.values()
        ),
        moments_left_out=past.marks_left,
        about=_about(state) if query.about else None,
    )


def remember(past: Past, snapshot: Snapshot) -> None:
    """Add a snapshot of a run, where only snapshots of it are left: one sample of each reading an update."""
    update, at = snapshot.run.update, int(snapshot.time * 1e9)
    for short, reading in snapshot.policy.items():
        name = name_of(short)
        line = past.lines.get(name)
        seen = line is not None and line.index[-1] == (-1 if update is None else update)
        if seen or (reading.value is None and reading.non_finite is None):
            continue
        value = math.nan if reading.value is None else reading.value
        past.add(name, at, (value, value), update)
    for one in snapshot.findings:
        since = int(one.since * 1e9)
        cleared = None if one.cleared_at is None else int(one.cleared_at * 1e9)
        mark = Mark(
            code=one.code, severity=one.severity, scope=one.subject.scope, subject=one.subject.id,
            since=since, cleared_at=cleared, message=one.message,
        )  # fmt: skip
        past.mark(one.id, mark)


def of_snapshot(snapshot: Snapshot, past: Past, query: HistoryQuery) -> History:
    """As `history`, where a snapshot is all that is known of the run's state: judged as that is."""
    origin = Origin(run_id=snapshot.run.run_id, ours=True)
    state = RunState(origin=origin, judged_by=snapshot.run.preset)
    found, readings = history(state, past, query), snapshot.policy | snapshot.services
    curves = tuple(_judged(curve, readings.get(curve.name)) for curve in found.curves)
    about = About(revision=_filled({"revision": snapshot.run.git_sha})) if query.about else None
    return msgspec.structs.replace(found, curves=curves, about=about)


def with_closer(found: History, closer: History) -> History:
    """The answer with the columns of another one wherever those are more: that is of a part of the past."""
    by_name = {curve.name: curve for curve in closer.curves}
    return msgspec.structs.replace(
        found, curves=tuple(_closer(curve, by_name.get(curve.name)) for curve in found.curves)
    )


def _closer(curve: Curve, other: Curve | None) -> Curve:
    if other is None or len(other.at) <= len(curve.at):
        return curve
    return msgspec.structs.replace(
        curve, at=other.at, update=other.update, low=other.low, high=other.high, each=other.each
    )


def _fits(name: str, requested: str) -> bool:
    return name == requested or fnmatchcase(name, requested)


def _judged(curve: Curve, reading: Reading | None) -> Curve:
    if reading is None:
        return curve
    limit, limits = reading.limit, curve.limits
    if limit is not None and all(one.value != limit.value for one in limits):
        above = limit.text.startswith(">")
        limits = (Line(value=limit.value, severity="warning", text=limit.text, above=above),)
    return msgspec.structs.replace(
        curve, status=reading.status, text=reading.text, scale=reading.scale, limits=limits
    )


def _named(past: Past) -> list[_Named]:
    """Every number: policy rows in the catalogue's order, services, the run's own, ranks, machines."""
    found: list[tuple[tuple[int, int, str], _Named]] = []
    for key in past.lines:
        kind = kind_of(key)
        if kind == "machine":
            found.append(((4, 0, key), _Named(safe(key), key, key, None)))
            continue
        is_ranked = kind == "rank"
        full, rank = key.rsplit("#", 1) if is_ranked else (key, "")
        name = safe(_short(full))
        place = _PLACES.get(full)
        group = 3 if is_ranked else 2 if place is None else 0 if BY_NAME[full].scope is Scope.POLICY else 1
        shown = f"{name}#{rank}" if is_ranked else name
        found.append(((group, place or 0, shown), _Named(shown, key, full, int(rank) if is_ranked else None)))
    return [one for _, one in sorted(found)]


_PLACES: Final = {name: place for place, name in enumerate(BY_NAME)}


def _short(full: str) -> str:
    """As the snapshot calls it: a policy row by its short name, a service's by its full one."""
    row = BY_NAME.get(full)
    return key_of(full) if row is None or row.scope is Scope.POLICY else row.name


def _curve(state: RunState, one: _Named, line: Series, query: HistoryQuery) -> Curve:
    row, series = BY_NAME.get(one.full), None if one.rank is not None else state.series(one.full)
    machine, _, short = one.key.rpartition("/") if kind_of(one.key) == "machine" else ("", "", "")
    row = _READINGS.get(short, row) if machine else row
    each, at, index, low, high = _columns(line, query)
    newest = float(line.high[-1]) if line.high and line.high[-1] == line.high[-1] else None
    fmt, suffix = (_CUSTOM, "") if row is None else shown_as(state, row)
    best, best_at = (None, None) if row is None or one.rank is not None else _best(row, line)
    return Curve(
        name=one.name,
        label=_label(one, row, machine),
        unit=None if row is None else row.unit,
        fmt=fmt,
        suffix=suffix,
        rank=one.rank,
        samples=line.samples,
        non_finite=line.blank,
        each=each,
        at=at,
        update=index,
        low=low,
        high=high,
        limits=() if row is None or machine else _limits(state, row),
        scale=None if row is None or series is None else scale_of(row, state.limits(row), series),
        direction=None if row is None or row.direction is Direction.NONE else row.direction.value,
        status="absent" if row is None or series is None else status_of(series),
        text=_text(newest, fmt, suffix) if series is None else text_of(series, fmt, suffix),
        best=best,
        best_update=best_at,
    )


def _label(one: _Named, row: Metric | None, machine: str) -> str:
    if row is None:
        return one.name
    if machine:
        return safe(f"{machine.removeprefix('gpu/')} {row.label}")
    return row.label if one.rank is None else f"{row.label} rank {one.rank}"


def _text(value: float | None, fmt: str, suffix: str) -> str:
    if value is None:
        return "–"
    for size, letter in _LARGE if fmt.endswith("f") else ():
        if abs(value) >= size:
            return f"{value / size:.2f}{letter}{suffix}"
    return format(value, fmt) + suffix


class _Columns(NamedTuple):
    each: int | None
    at: tuple[float, ...] = ()
    update: tuple[int | None, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


def _columns(line: Series, query: HistoryQuery) -> _Columns:
    """The columns within the asked time, as many together as make no more than are wanted."""
    at = np.array(line.at, np.int64)
    begin = 0 if query.since is None else int(np.searchsorted(at, int(query.since * 1e9), "left"))
    end = at.size if query.until is None else int(np.searchsorted(at, int(query.until * 1e9), "right"))
    at, index = at[begin:end], np.array(line.index, np.int64)[begin:end]
    low, high = np.array(line.low)[begin:end], np.array(line.high)[begin:end]
    if not at.size:
        return _Columns(None)
    each = -(-at.size // max(1, query.columns))
    starts = np.arange(0, at.size, each)
    lasts = np.append(starts[1:] - 1, at.size - 1)
    lows, highs = np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts)
    return _Columns(
        each * line.per,
        tuple((at[lasts] / 1e9).tolist()),
        tuple(None if one < 0 else one for one in index[lasts].tolist()),
        tuple(None if one != one else one for one in lows.tolist()),  # noqa: PLR0124
        tuple(None if one != one else one for one in highs.tolist()),  # noqa: PLR0124
    )


def _best(row: Metric, line: Series) -> tuple[float | None, int | None]:
    """The best value and its update, of a row of which one way is good."""
    values = np.array(line.high if row.direction is Direction.UP else line.low)
    if row.direction is Direction.NONE or not values.size or np.isnan(values).all():
        return None, None
    place = int(np.nanargmax(values) if row.direction is Direction.UP else np.nanargmin(values))
    number = line.index[place]
    return float(values[place]), None if number < 0 or line.per > 1 else number


def _limits(state: RunState, row: Metric) -> tuple[Line, ...]:
    """Every level of the row in this run, in its unit; a relative one waits for the run's own median."""
    series, limits = state.policy.get(row.name), state.limits(row)
    usual = [] if series is None else series.usual.items
    own = median(usual) if len(usual) >= MEDIAN_NEEDS else None
    found: list[Line] = []
    for side in limits.sides if limits != NO_LIMITS else ():
        for severity, limit in (("warning", side.warning), ("critical", side.critical)):
            value = None if limit is None else limit.threshold(own)
            if limit is not None and value is not None:
                text, above = limit_text(row, limit), limit.side.is_above
                found.append(Line(value=value, severity=severity, text=text, above=above))
    return tuple(found)


def _about(state: RunState) -> About:
    started = state.started
    if started is None:
        return About()
    words = {True: "yes", False: "no", None: None}
    nodes = dict.fromkeys(one.node for one in state.ranks.starts.values() if one.node)
    modes = {
        "task": started.task,
        "algorithm": started.algo,
        "nodes": ", ".join(nodes) or None,
        "devices": ", ".join(started.devices) or None,
        "amp": started.amp,
        "compile": words[started.compile],
        "ddp": started.ddp,
        "world size": started.world_size,
        "attempt": started.attempt,
        "envs": started.n_envs,
        "updates planned": started.updates,
        "batches planned": started.batches,
        "preset": state.preset,
        "reward mode": started.reward_mode,
        "group": started.group,
    }
    return About(
        config=safe_fields(started.config),
        revision=_filled({"revision": started.git_sha, "changed": words[started.dirty]}),
        environment=_filled(modes),
    )


def _filled(rows: "dict[str, str | int | None]") -> dict[str, str]:
    return {name: safe(str(value)) for name, value in rows.items() if value is not None}
