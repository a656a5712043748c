"""What charts are made of: the past as it came, which part of it is in sight, and what lies over what.

Owns the choice of numbers and of times. Where no past has come yet, the few updates of the snapshot stand in
for it. Pure. Must not know keys, panels or the network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from overwatch.catalog.goodhart import FOOD, POISON, PROXY, TRUE
from overwatch.snapshot import Reading, Snapshot
from overwatch.snapshot.history import Curve, History, HistoryQuery, Line, Moment
from overwatch.tui.curve import LETTERS, Other

FIRST: Final = (
    "return", "eval_return", PROXY.short, "kl_divergence", "entropy", "explained_variance", "policy_loss",
    "value_loss", "total_loss", "clip_fraction", "grad_norm", "learning_rate",
)  # fmt: skip
"""Numbers that come first, in this order."""
WITH_PROXY: Final = (TRUE.short, FOOD.short, POISON.short)
"""Numbers that the chart of the proxy return shows with it."""
OVERLAYS: Final = ("nothing", "ranks", "marked runs")
LEAST_WINDOW: Final = 0.01
"""Part of a run that can be in sight, at the least."""
_PENDING_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Charts:
    """What the user sees of the past."""

    histories: Mapping[str, History] = field(default_factory=dict)
    """By run id."""
    pattern: str = ""
    picked: int = 0
    whole: bool = False
    """One chart takes the whole page."""
    log: bool = False
    window: tuple[float, float] = (0.0, 1.0)
    """Parts of the run between which it is in sight."""
    cursor: float | None = None
    """Part of the run at which values are read."""
    overlay: str = OVERLAYS[0]
    marked: tuple[str, ...] = ()
    """Runs that may lie over the one that is shown, in the order in which they were marked."""

    @property
    def zoomed(self) -> bool:
        """Whether not all of the run is in sight."""
        return self.window != (0.0, 1.0)

    def of(self, snapshot: Snapshot) -> History | None:
        """The past of the run that is shown, where it has come."""
        return self.histories.get(snapshot.run.run_id)


def matches(name: str, pattern: str) -> bool:
    """Whether a name passes: it has the text in it, or fits a pattern with `*`."""
    return fnmatchcase(name, pattern) if "*" in pattern or "?" in pattern else pattern in name


def names(snapshot: Snapshot, charts: Charts) -> tuple[str, ...]:
    """All numbers of a run that pass the pattern, in the order in which they are drawn."""
    history = charts.of(snapshot)
    known = (*(() if history is None else history.names), *reported(snapshot))
    ordered = dict.fromkeys((*(name for name in FIRST if name in known), *known))
    is_hidden = charts.overlay == OVERLAYS[1]
    return tuple(
        name for name in ordered if matches(name, charts.pattern) and not (is_hidden and "#" in name)
    )


def reported(snapshot: Snapshot) -> list[str]:
    """The numbers of the policy that have a value now."""
    readings = snapshot.policy.items()
    return [name for name, one in readings if one.value is not None or one.non_finite is not None]


def curve(snapshot: Snapshot, charts: Charts, name: str) -> Curve:
    """The past of a number; what the snapshot has of it where no past has come."""
    return _past(snapshot, charts, name) or of_reading(snapshot, name)


def _past(snapshot: Snapshot, charts: Charts, name: str) -> Curve | None:
    history = charts.of(snapshot)
    return None if history is None else next((one for one in history.curves if one.name == name), None)


def bars(snapshot: Snapshot, charts: Charts, name: str) -> tuple[float | None, ...]:
    """The past of a number as one value a column, the worse end of each; empty where none has come."""
    found = _past(snapshot, charts, name)
    if found is None:
        return ()
    return found.low if found.direction == "up" else found.high


def resampled(values: tuple[float | None, ...], width: int) -> tuple[float | None, ...]:
    """So many values at most, evenly over all of them, the last one among them."""
    if len(values) <= width:
        return values
    return tuple(values[(place + 1) * len(values) // width - 1] for place in range(width))


def of_reading(snapshot: Snapshot, name: str) -> Curve:
    """A curve of the last few updates."""
    reading = snapshot.policy.get(name, Reading(label=name))
    values = reading.history
    newest = snapshot.run.update
    updates = (None if newest is None else newest + 1 - back for back in range(len(values), 0, -1))
    limit = reading.limit
    return Curve(
        name=name,
        label=reading.label or name,
        fmt=".4g",
        samples=len(values),
        non_finite=0,
        at=tuple(snapshot.time - back * _PENDING_S for back in range(len(values) - 1, -1, -1)),
        update=tuple(updates),
        low=values,
        high=values,
        limits=() if limit is None else (Line(value=limit.value, severity="warning", text=limit.text),),
        scale=reading.scale,
        direction=reading.direction,
        status=reading.status,
        text=reading.text,
    )


def others(snapshot: Snapshot, charts: Charts, name: str) -> tuple[Other, ...]:
    """What lies over a number's curve: the same of other ranks, or of the marked runs."""
    history = charts.of(snapshot)
    if history is None or charts.overlay == OVERLAYS[0]:
        return ()
    begin = history.since or 0.0
    if charts.overlay == OVERLAYS[1]:
        found = [(begin, one) for one in history.curves if one.name.startswith(f"{name}#")]
    else:
        pasts = [charts.histories[run] for run in charts.marked if run in charts.histories]
        pasts = [past for past in pasts if past.run_id != snapshot.run.run_id]
        found = [(past.since or 0.0, one) for past in pasts for one in past.curves if one.name == name]
    return tuple(
        Other(letter=letter, curve=one, begin=its) for letter, (its, one) in zip(LETTERS, found, strict=False)
    )


def span(snapshot: Snapshot, charts: Charts, curves: Sequence[Curve]) -> tuple[float, float]:
    """Begin and end of the run, as far as its past is held, Unix seconds."""
    history = charts.of(snapshot)
    if history is not None and history.since is not None and history.until is not None:
        return history.since, max(history.until, history.since + _PENDING_S)
    times = [at for one in curves for at in one.at]
    begin = min(times, default=snapshot.time - _PENDING_S)
    return begin, max([*times, begin + _PENDING_S])


def within(whole: tuple[float, float], charts: Charts) -> tuple[float, float]:
    """The times that are in sight."""
    begin, end = whole
    first, last = charts.window
    return begin + (end - begin) * first, begin + (end - begin) * last


def moments(snapshot: Snapshot, charts: Charts) -> tuple[Moment, ...]:
    """Findings on the axis of time: all of the run, or those that the snapshot has."""
    history = charts.of(snapshot)
    if history is not None:
        return history.moments
    return tuple(
        Moment(code=one.code, severity=one.severity, since=one.since, message=one.message)
        for one in snapshot.findings
    )


def asks(
    snapshot: Snapshot, charts: Charts, shown: tuple[str, ...], width: int, *, about: bool = False
) -> list[tuple[str, HistoryQuery]]:
    """What of which run's past is needed to draw some numbers in charts of `width` cells."""
    history = charts.of(snapshot)
    run_id, since, until = snapshot.run.run_id, None, None
    if charts.zoomed and history is not None and history.since is not None and history.until is not None:
        begin, end = within((history.since, history.until), charts)
        since, until = begin - (end - begin) / 10, end + (end - begin) / 10
    if PROXY.short in shown:
        shown = tuple(dict.fromkeys((*shown, *WITH_PROXY)))
    ranked = tuple(f"{name}#*" for name in shown[:4]) if charts.overlay == OVERLAYS[1] else ()
    wanted = HistoryQuery(
        names=(*(name for name in shown if name.isprintable()), *ranked)[:64] or ("",),
        columns=max(16, min(512, 2 * width)),
        since=None if since is None else max(0.0, since),
        until=until,
        about=about,
    )
    runs = charts.marked if charts.overlay == OVERLAYS[2] else ()
    whole = HistoryQuery(names=wanted.names, columns=wanted.columns)
    return [(run_id, wanted), *((run, whole) for run in runs if run != run_id)]
