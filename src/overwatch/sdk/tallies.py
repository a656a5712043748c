"""Counters and histograms of a process: summed here, sent once a second and at the end.

Rules: a call adds to a sum and does nothing else; a thread of its own sends what changed, and every half
minute everything, since a lost record must lose nothing. A label set too many is counted as `other`, a name
too many is refused. Must not know rings or OTLP.
"""

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, Metric, Scope, find
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
from overwatch.sdk.tracing import SpanRef
from overwatch.sdk.values import RefusedError, number, text

EVERY_S: Final = 1.0
"""Between two records of what changed..."""
WHOLE_EVERY: Final = 30
"""...of which one in so many holds everything."""
MOST_A_RECORD: Final = 128
"""Series in one record."""
MAX_NAME: Final = 128
_LARGEST: Final = 1e15

_Labels: TypeAlias = tuple[tuple[str, str], ...]
Say: TypeAlias = Callable[[str, str], object]
"""Called once about a thing, with a line for a person."""


def _is_label(name: str) -> bool:
    return name.isidentifier() and name.isascii() and name[:2] != "__" and name not in TAKEN_LABELS


class _Sum:
    """One series so far."""

    __slots__ = ("buckets", "count", "samples", "total")

    def __init__(self, ends: tuple[float, ...] | None) -> None:
        self.total = 0.0
        self.count = 0
        self.buckets = None if ends is None else [0] * (len(ends) + 1)
        self.samples: dict[int, Sample] = {}
        """By the place of the bucket."""


class _Name:
    """One metric so far."""

    __slots__ = ("ends", "full", "label_names", "most", "row", "scope", "sums")

    def __init__(self, full: str, row: Metric | None, scope: Scope, kind: Kind) -> None:
        self.full, self.row, self.scope = full, row, scope
        self.ends = buckets_of(row) if kind is Kind.HISTOGRAM else None
        self.most = most_series(row)
        self.label_names: tuple[str, ...] | None = None if row is None else row.labels
        """`None` of a custom name, which takes any."""
        self.sums: dict[_Labels, _Sum] = {}

    def series(self, labels: _Labels) -> TallySeries:
        one = self.sums[labels]
        if one.buckets is None or self.ends is None:
            return TallySeries(metric=self.full, labels=dict(labels), sum=one.total)
        held = Buckets(bounds=self.ends, counts=tuple(one.buckets))
        return TallySeries(
            metric=self.full,
            labels=dict(labels),
            sum=one.total,
            count=one.count,
            buckets=held,
            samples=tuple(one.samples.values()),
        )


class Tallies:
    """All counters and histograms of one run's process; `send` takes records, `say` lines for a person."""

    def __init__(
        self, role: str, send: Callable[[Tallied], None], say: Say, every_s: float = EVERY_S
    ) -> None:
        self.scope = SCOPE_OF_ROLE.get(role, Scope.RUN)
        """Of what no row of another scope knows."""
        self._send, self._say, self._every_s = send, say, every_s
        self._lock = threading.RLock()
        """Held while a sum is added to or read, never while anything is sent."""
        self._sending = threading.RLock()
        self._names: dict[str, _Name] = {}
        """By the name that was given."""
        self._changed: dict[tuple[_Name, _Labels], None] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent = 0

    def count(self, name: str, n: object, labels: Mapping[str, object]) -> None:
        """Add to a counter; raises `RefusedError`."""
        more = number(n)
        if not 0 <= more <= _LARGEST:
            raise RefusedError(f"{more:g} cannot be counted: a counter grows by 0 to {_LARGEST:g}")
        with self._adding(name, Kind.COUNTER, labels) as one:
            one.total = min(one.total + more, _LARGEST)

    def observe(
        self, name: str, value: object, labels: Mapping[str, object], ref: SpanRef | None = None
    ) -> None:
        """Add a value to a histogram, observed in a span; raises `RefusedError`."""
        seen = number(value)
        if not abs(seen) <= _LARGEST:
            raise RefusedError(f"{seen:g} has no place in a histogram: values are finite, up to {_LARGEST:g}")
        with self._adding(name, Kind.HISTOGRAM, labels) as one:
            one.total += seen
            one.count += 1
            if one.buckets is not None:
                place = bisect_left(self._names[name].ends or (), seen)
                one.buckets[place] += 1
                if ref is not None:
                    one.samples[place] = Sample(
                        bucket=place,
                        value=seen,
                        at=time.time_ns(),
                        trace_id=f"{ref.trace_id:032x}",
                        span_id=f"{ref.span_id:016x}",
                    )

    @contextlib.contextmanager
    def _adding(self, name: str, kind: Kind, labels: Mapping[str, object]) -> Iterator[_Sum]:
        with self._lock:
            known = self._names.get(name) or self._open(name, kind)
            if (known.ends is None) is not (kind is Kind.COUNTER):
                use = "count" if known.ends is None else "observe"
                raise RefusedError(f"it was used with run.{use} before: a name is one of both")
            key = self._key(known, labels)
            one = known.sums.get(key)
            if one is None:
                one = known.sums[key] = _Sum(known.ends)
            yield one
            self._changed[known, key] = None
        if self._thread is None:
            self._begin()

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
        custom = sum(one.row is None for one in self._all())
        if row is None and custom >= MAX_NAMES:
            raise RefusedError(f"a run counts {MAX_NAMES} custom names; {name[:MAX_NAME]!r} is one more")
        full = name if name.startswith(CUSTOM_PREFIX) else f"{CUSTOM_PREFIX}{text(name, MAX_NAME)}"
        opened = _Name(full, None, self.scope, kind) if row is None else _Name(row.name, row, row.scope, kind)
        # A name that is given in two spellings is one name.
        self._names[name] = opened = next((one for one in self._all() if one.full == opened.full), opened)
        return opened

    def _all(self) -> list[_Name]:
        return list(dict.fromkeys(self._names.values()))

    def _key(self, known: _Name, labels: Mapping[str, object]) -> _Labels:
        """The label set that counts: known names only, and the one of all others beyond the most."""
        if not labels:
            return self._within(known, ())
        if known.label_names is None:
            taken = sorted(filter(_is_label, labels))[:MAX_LABELS]
        else:
            taken = [name for name in known.label_names if name in labels]
        if len(taken) < len(labels):
            odd = ", ".join(sorted(name for name in labels if name not in taken))
            allowed = (
                "plain words that the page of metrics does not use"
                if known.label_names is None
                else str(known.label_names)
            )
            self._say(f"labels {known.full}", f"{known.full}: no label {odd}; allowed: {allowed}. Left out")
        return self._within(known, tuple((name, text(labels[name], MAX_LABEL)) for name in taken))

    def _within(self, known: _Name, key: _Labels) -> _Labels:
        if key in known.sums or len(known.sums) < known.most or not key:
            return key
        self._say(
            f"sets {known.full}",
            f"{known.full} has {known.most} label sets; others are counted as {OTHER!r}",
        )
        return tuple((name, OTHER) for name, _ in key)

    def send(self, *, whole: bool = False) -> None:
        """Send what changed, or everything."""
        with self._sending:
            if self._over.is_set():
                return
            at = time.time_ns()
            for scope, series in self._read(whole=whole).items():
                rest = iter(series)
                while part := tuple(islice(rest, MOST_A_RECORD)):
                    self._send(Tallied(at=at, scope=scope, series=part))

    def _read(self, *, whole: bool) -> dict[Scope, list[TallySeries]]:
        """What changed since the last time, or everything, by scope."""
        with self._lock:
            if whole:
                changed = [(known, key) for known in self._all() for key in known.sums]
            else:
                changed = list(self._changed)
            self._changed = {}
            by_scope: dict[Scope, list[TallySeries]] = {}
            for known, key in changed:
                by_scope.setdefault(known.scope, []).append(known.series(key))
            return by_scope

    def close(self) -> None:
        """Send everything; nothing is sent afterwards."""
        with self._sending:
            if self._names:
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
        while not self._over.wait(self._every_s):
            self._sent += 1
            with contextlib.suppress(Exception):  # the border of a thread: what changed later is sent later
                self.send(whole=not self._sent % WHOLE_EVERY)
