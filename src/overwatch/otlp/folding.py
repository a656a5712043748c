"""Many measurements of the same subjects and names become few, each in the place of the last it stands for.

Rules: what is left are values that were told, with the number of measurements, the finite extremes and how
many were beyond each absolute limit; folding what was folded gives the same as folding all at once. A row
that the last measurement does not have stands in the place of the one that had it last. Pure; must not know
where measurements come from.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.catalog import BY_NAME, Limit, NonFinite, Scope
from overwatch.events import Column, Conflated, Measured

Rows = npt.NDArray[np.intp]
_FINITE_KINDS: Final = "iu"


def fold(events: Sequence[Measured]) -> list[tuple[int, Measured]]:
    """What is left of measurements of one scope with the same names: positions of those kept, with them.

    Measurements that do not fit together are all left.
    """
    if len(events) < 2 or not events[0].values:
        return list(enumerate(events))
    table = _Table(events)
    if not table.fits:
        return list(enumerate(events))
    extremes = {
        name: _extremes(table, name) for name, column in events[0].values.items() if _is_number(column)
    }
    kept = sorted(set(table.last.tolist()))
    return [(place, _stand_in(table, place, extremes, counts=place == kept[-1])) for place in kept]


class _Table:
    """Which row of all subjects each row of each measurement is, and where each was told last."""

    def __init__(self, events: Sequence[Measured]) -> None:
        self.events = events
        self.rows: list[Rows] = []
        self.fits = True
        signatures: dict[tuple[tuple[str, bytes, tuple[str, ...] | None], ...], int] = {}
        order: list[int] = []
        distinct: list[Measured] = []
        for event in events:
            columns = event.keys.values() or [Column(dtype="|i1", data=bytes(_length(event)))]
            signature = tuple((column.dtype, column.data, column.labels) for column in columns)
            if signature not in signatures:
                signatures[signature] = len(distinct)
                distinct.append(event)
            order.append(signatures[signature])
        found, size = _numbered(distinct)
        self.rows = [found[place] for place in order]
        self.fits = all(rows.size == _length(event) for rows, event in zip(self.rows, events, strict=True))
        self.last = np.full(size, -1, dtype=np.intp)
        self.n = np.zeros(size, dtype=np.int64)
        for place, (event, rows) in enumerate(zip(events, self.rows, strict=True)):
            self.last[rows] = place
            self.n[rows] += 1 if event.conflated is None else max(event.conflated.n, 1)


def _length(event: Measured) -> int:
    return len(next(iter(event.values.values()), ()))


def _numbered(events: Sequence[Measured]) -> tuple[list[Rows], int]:
    """Of each set of subjects the numbers of its rows among all, and how many there are."""
    words: dict[str | None, int] = {}
    tables = []
    for event in events:
        ids = [_ids(column, words) for column in event.keys.values()]
        tables.append(np.stack(ids, axis=1) if ids else np.arange(_length(event))[:, None])
    unique, inverse = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    numbers = inverse.reshape(-1).astype(np.intp)
    return np.split(numbers, np.cumsum([table.shape[0] for table in tables])[:-1]), unique.shape[0]


def _ids(column: Column, words: dict[str | None, int]) -> npt.NDArray[np.int64]:
    """A key column as numbers; equal words are equal numbers in all measurements."""
    if column.labels is None:
        return column.array().astype(np.int64)
    codes = [words.setdefault(word, len(words)) for word in (*column.labels, None)]
    return np.array(codes, dtype=np.int64)[column.array().astype(np.int64)]


def _is_number(column: Column) -> bool:
    return column.labels is None


def _extremes(table: _Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest finite value of each row; NaN where there was none."""
    low = np.full(table.last.size, np.nan)
    high = np.full(table.last.size, np.nan)
    for event, rows in zip(table.events, table.rows, strict=True):
        many = event.conflated
        values = _finite(event.values[name])
        least = _finite(many.low[name]) if many is not None and name in many.low else values
        most = _finite(many.high[name]) if many is not None and name in many.high else values
        low[rows] = np.fmin(low[rows], least)
        high[rows] = np.fmax(high[rows], most)
    # Adding 0 leaves no -0.0, of which the order of folding would decide.
    return low + 0.0, high + 0.0


def _finite(column: Column) -> np.ndarray:
    values = column.array().astype(np.float64)
    return values if column.dtype[1] in _FINITE_KINDS else np.where(np.isfinite(values), values, np.nan)


def _stand_in(
    table: _Table, place: int, extremes: dict[str, tuple[np.ndarray, np.ndarray]], *, counts: bool
) -> Measured:
    """What stands for the rows that were told last at a place; `counts` where all breaches are told."""
    event, rows = table.events[place], table.rows[place]
    mine = table.last[rows] == place
    n = int(table.n[rows[mine]].max())
    if not mine.all():
        event = msgspec.structs.replace(
            event,
            keys={name: _taken(column, mine) for name, column in event.keys.items()},
            values={name: _taken(column, mine) for name, column in event.values.items()},
            conflated=None,
        )
    if n == 1:
        return event
    low, high = {}, {}
    for name, (least, most) in extremes.items():
        dtype = event.values[name].dtype
        if np.isfinite(least[rows[mine]]).any():
            low[name] = Column.of(least[rows[mine]].astype(dtype))
            high[name] = Column.of(most[rows[mine]].astype(dtype))
    warnings, criticals = _breaches(table.events) if counts else ({}, {})
    first, updates = _numbers(table.events)
    many = Conflated(
        n=n, first=first, updates=updates, low=low, high=high, warnings=warnings, criticals=criticals
    )
    return msgspec.structs.replace(event, conflated=many)


def _taken(column: Column, mine: np.ndarray) -> Column:
    return Column(dtype=column.dtype, data=column.array()[mine].tobytes(), labels=column.labels)


def _numbers(events: Sequence[Measured]) -> tuple[int | None, int | None]:
    """The number of the first measurement; of the policy's also how many updates they are."""
    if events[0].scope is not Scope.POLICY:
        return _first(events), None
    before, updates = None, 0
    for event in events:
        more = event.updates(before)
        updates += more
        before = event.index if more else before
    many = events[0].conflated
    return events[0].index if many is None else many.first, updates


def _first(events: Sequence[Measured]) -> int | None:
    """The number of the first measurement that has one."""
    for event in events:
        if event.conflated is not None and event.conflated.first is not None:
            return event.conflated.first
        if event.index is not None:
            return event.index
    return None


def _breaches(events: Sequence[Measured]) -> tuple[dict[str, int], dict[str, int]]:
    """Values beyond the warning limit, not the critical one, and beyond that, by name."""
    warnings: dict[str, int] = {}
    criticals: dict[str, int] = {}
    for event in events:
        for name, column in event.values.items():
            if event.conflated is None:
                poor, bad = _beyond(name, column)
            else:
                poor = event.conflated.warnings.get(name, 0)
                bad = event.conflated.criticals.get(name, 0)
            if poor:
                warnings[name] = warnings.get(name, 0) + poor
            if bad:
                criticals[name] = criticals.get(name, 0) + bad
    return warnings, criticals


def _beyond(name: str, column: Column) -> tuple[int, int]:
    row = BY_NAME.get(name)
    if row is None or column.labels is not None:
        return 0, 0
    values = column.array()
    poor, bad = np.zeros((2, values.size), dtype=np.bool_)
    for limits in row.limits.sides:
        bad |= _crossed(limits.critical, values)
        poor |= _crossed(limits.warning, values)
    if row.non_finite is NonFinite.CRITICAL:
        bad |= ~np.isfinite(values)
    return int(np.count_nonzero(poor & ~bad)), int(np.count_nonzero(bad))


def _crossed(limit: Limit | None, values: np.ndarray) -> npt.NDArray[np.bool_]:
    """Which values are beyond an absolute limit."""
    if limit is None or limit.relative:
        return np.zeros(values.size, dtype=np.bool_)
    return np.fromiter((limit.side.crossed(value, limit.value) for value in values.tolist()), dtype=np.bool_)
