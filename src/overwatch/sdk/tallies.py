"""Counters and histograms of a process: summed here, sent once a second and at the end.

Rules: a call adds to a sum and does nothing else; a thread of its own sends what changed, and every half
minute everything, since a lost record must lose nothing. A label set too many is counted as `other`, a name
too many is refused. Must not know rings or OTLP.
"""

import contextlib
import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from overwatch.catalog import BY_NAME, Metric, Scope, find
from overwatch.catalog.metric import Kind
from overwatch.catalog.tallies import (
    MAX_LABEL,
    MAX_LABELS,
    MAX_NAMES,
    OTHER,
    SCOPE_OF_ROLE,
    TAKEN_LABELS,
    buckets_of,
    is_tally,
    most_series,
)
from overwatch.events import Buckets, Sample, Tallied, TallySeries
from overwatch.sdk.names import MAX_NAME, custom_name
from overwatch.sdk.tracing import SpanRef
from overwatch.sdk.values import RefusedError, number, text

EVERY_S: Final = 1.0
"""Between two records of what changed..."""
WHOLE_EVERY: Final = 30
"""...of which one in so many holds everything."""
MOST_A_RECORD: Final = 128
"""Series in one record."""
_LARGEST: Final = 1e15

_Labels: TypeAlias = tuple[tuple[str, str], ...]
Warn: TypeAlias = Callable[[str, str], object]
"""Called once about a thing, with a line for a person."""


@dataclass(slots=True, eq=False)
class _Name:
    """One metric so far."""

    full: str
    row: Metric | None
    """`None` of a custom name, which takes any labels."""
    scope: Scope
    ends: tuple[float, ...] | None
    """Of the buckets of a histogram; `None` of a counter."""
    series: dict[_Labels, "_Series"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Series:
    """One label set of a metric so far."""

    name: _Name
    labels: _Labels
    buckets: list[int]
    total: float = 0.0
    samples: dict[int, Sample] = field(default_factory=dict)
    """By the place of the bucket."""

    def read(self) -> TallySeries:
        """As it is sent."""
        labels = dict(self.labels)
        if self.name.ends is None:
            return TallySeries(metric=self.name.full, labels=labels, sum=self.total)
        return TallySeries(
            metric=self.name.full,
            labels=labels,
            sum=self.total,
            count=sum(self.buckets),
            buckets=Buckets(bounds=self.name.ends, counts=tuple(self.buckets)),
            samples=tuple(self.samples.values()),
        )


class Tallies:
    """All counters and histograms of one run's process; `send` takes records, `warn` lines for a person."""

    def __init__(
        self, role: str, send: Callable[[Tallied], None], warn: Warn, every_s: float = EVERY_S
    ) -> None:
        self.scope = SCOPE_OF_ROLE.get(role, Scope.RUN)
        """Of what no row of another scope knows."""
        self._send, self._warn, self._every_s = send, warn, every_s
        self._lock = threading.RLock()
        """Held while a sum is added to or read, never while anything is sent."""
        self._sending = threading.RLock()
        self._names: dict[str, _Name] = {}
        """By the name that was given."""
        self._changed: dict[_Series, None] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def count(self, name: str, n: object, labels: Mapping[str, object]) -> None:
        """Add to a counter; raises `RefusedError`."""
        more = number(n)
        if not 0 <= more <= _LARGEST:
            raise RefusedError(f"{more:g} cannot be counted: a counter grows by 0 to {_LARGEST:g}")
        with self._lock:
            one = self._series(name, Kind.COUNTER, labels)
            one.total = min(one.total + more, _LARGEST)
        if self._thread is None:
            self._begin()

    def observe(
        self, name: str, value: object, labels: Mapping[str, object], ref: SpanRef | None = None
    ) -> None:
        """Add a value to a histogram, observed in a span; raises `RefusedError`."""
        seen = number(value)
        if not abs(seen) <= _LARGEST:
            raise RefusedError(f"{seen:g} has no place in a histogram: values are finite, up to {_LARGEST:g}")
        with self._lock:
            one = self._series(name, Kind.HISTOGRAM, labels)
            place = bisect_left(one.name.ends or (), seen)
            one.total += seen
            one.buckets[place] += 1
            if ref is not None:
                trace_id, span_id = f"{ref.trace_id:032x}", f"{ref.span_id:016x}"
                one.samples[place] = Sample(
                    bucket=place, value=seen, at=time.time_ns(), trace_id=trace_id, span_id=span_id
                )
        if self._thread is None:
            self._begin()

    def _series(self, name: str, kind: Kind, labels: Mapping[str, object]) -> _Series:
        """The series that changes now. Needs the lock."""
        known = self._names.get(name) or self._open(name, kind)
        if (known.ends is None) is not (kind is Kind.COUNTER):
            use = "count" if known.ends is None else "observe"
            raise RefusedError(f"it was used with run.{use} before: a name is one of both")
        key = self._key(known, labels)
        one = known.series.get(key)
        if one is None:
            one = known.series[key] = _Series(known, key, [0] * (len(known.ends or ()) + 1))
        self._changed[one] = None
        return one

    def _open(self, name: object, kind: Kind) -> _Name:
        if not isinstance(name, str) or not name:
            raise RefusedError(f"{name!r} is no name; give text, e.g. run.count('refused')")
        row = find(name, self.scope) if self.scope is not Scope.RUN else BY_NAME.get(name)
        if row is not None and not is_tally(row):
            raise RefusedError(
                f"{row.name} is no counter or histogram with labels; use run.update or run.gauge"
            )
        if row is not None and row.kind is not kind:
            use = "count" if row.kind is Kind.COUNTER else "observe"
            raise RefusedError(f"{row.name} is a {row.kind.value}: use run.{use}")
        if row is None and sum(one.row is None for one in self._all()) >= MAX_NAMES:
            raise RefusedError(f"a run counts {MAX_NAMES} custom names; {name[:MAX_NAME]!r} is one more")
        full, scope = (custom_name(name), self.scope) if row is None else (row.name, row.scope)
        opened = _Name(full, row, scope, buckets_of(row) if kind is Kind.HISTOGRAM else None)
        # A name that is given in two spellings is one name.
        self._names[name] = opened = next((one for one in self._all() if one.full == full), opened)
        return opened

    def _all(self) -> list[_Name]:
        return list(dict.fromkeys(self._names.values()))

    def _key(self, known: _Name, labels: Mapping[str, object]) -> _Labels:
        """The label set that counts: known names only, and the one of all others beyond the most."""
        if known.row is None:
            taken = sorted(filter(_is_label, labels))[:MAX_LABELS]
        else:
            taken = [name for name in known.row.labels if name in labels]
        if len(taken) < len(labels):
            words = "plain words that the page of metrics does not use"
            allowed = words if known.row is None else known.row.labels
            odd = ", ".join(sorted(name for name in labels if name not in taken))
            self._warn(f"labels {known.full}", f"{known.full}: no label {odd}; allowed: {allowed}. Left out")
        key = tuple((name, text(labels[name], MAX_LABEL)) for name in taken)
        most = most_series(known.row)
        if not key or key in known.series or len(known.series) < most:
            return key
        self._warn(
            f"sets {known.full}", f"{known.full} has {most} label sets; others are counted as {OTHER!r}"
        )
        return tuple((name, OTHER) for name, _ in key)

    def send(self, *, whole: bool = False) -> None:
        """Send what changed, or everything."""
        with self._sending:
            if self._over.is_set():
                return
            at = time.time_ns()
            for scope, series in self._read(whole=whole).items():
                for start in range(0, len(series), MOST_A_RECORD):
                    part = tuple(series[start : start + MOST_A_RECORD])
                    self._send(Tallied(at=at, scope=scope, series=part))

    def _read(self, *, whole: bool) -> dict[Scope, list[TallySeries]]:
        """What changed since the last time, or everything, by scope."""
        with self._lock:
            changed, self._changed = list(self._changed), {}
            if whole:
                changed = [one for known in self._all() for one in known.series.values()]
            by_scope: dict[Scope, list[TallySeries]] = {}
            for one in changed:
                by_scope.setdefault(one.name.scope, []).append(one.read())
            return by_scope

    def close(self) -> None:
        """Send everything; nothing is sent afterwards."""
        with self._sending:
            self.send(whole=True)
            self._over.set()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name="overwatch-tallies", daemon=True)
                # No threads any more at exit: `close` sends what there is.
                with contextlib.suppress(RuntimeError):
                    self._thread.start()

    def _run(self) -> None:
        rounds = itertools.count(1)
        while not self._over.wait(self._every_s):
            with contextlib.suppress(Exception):  # the border of a thread: what changed later is sent later
                self.send(whole=not next(rounds) % WHOLE_EVERY)


def _is_label(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name[:2] != "__" and name not in TAKEN_LABELS
