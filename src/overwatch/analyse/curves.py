"""How numbers went over a run: one curve a number, with update, time and steps of each value.

Of a recording every record of the policy is a value. A snapshot carries the newest ten values of a number, so
curves that are made of snapshots alone have every value of up to nine updates a second. Pure.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from overwatch.catalog import Metric, Scope, find, key_of, name_of, row_of
from overwatch.catalog.tallies import SERVICES
from overwatch.events import Measured, Record
from overwatch.events.adding import added
from overwatch.projection.text import safe
from overwatch.snapshot import Reading, Snapshot
from overwatch.state.past import Past, measured_numbers
from overwatch.state.run import RunState

Axis = Literal["update", "time", "steps"]
Numbers: TypeAlias = "array[float]"
"""Doubles, packed."""
PULSE: Final = (
    "return", "kl_divergence", "entropy", "clip_fraction", "explained_variance", "grad_norm", "policy_loss",
    "value_loss",
)  # fmt: skip
"""Numbers of the policy that are shown first."""
TASK_METRIC: Final = "task_metric"
"""The run's own metric: the mean over lanes of the median of their envs."""
STEPS_PER_S: Final = "steps_per_s"
NOT_OK: Final = "envs_not_ok"
"""How many envs are not OK."""
LANE_FIELDS: Final = ("utilization", "memory_used_bytes", "temperature_c", "power_w", "clock_hz")
HOST_FIELDS: Final = ("cpu_utilization", "ram_used_bytes")
_SAME_S: Final = 1e-6


@dataclass(slots=True, kw_only=True)
class Curve:
    """One number over time; the columns have one length."""

    name: str
    """Short name within its scope."""
    label: str
    scope: Scope
    direction: str | None = None
    """Which way is good: `up`, `down`, or absent where neither is."""
    subject: str | None = None
    """The lane it is of; absent for what is of the whole run."""
    update: Numbers = field(default_factory=lambda: array("d"))
    time: Numbers = field(default_factory=lambda: array("d"))
    """Seconds since the run began."""
    steps: Numbers = field(default_factory=lambda: array("d"))
    value: Numbers = field(default_factory=lambda: array("d"))
    """NaN where it was not finite."""

    @property
    def row(self) -> Metric | None:
        """Its row of the catalogue; `None` for a number of the run's own."""
        return row_of(self.name, self.scope)

    def __len__(self) -> int:
        return len(self.value)

    def add(self, value: float | None, update: float, time: float, steps: float) -> None:
        """Append one value."""
        self.value.append(math.nan if value is None else value)
        self.update.append(update)
        self.time.append(time)
        self.steps.append(steps)

    def along(self, axis: Axis) -> Numbers:
        """The column of an axis."""
        return {"update": self.update, "time": self.time, "steps": self.steps}[axis]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What the last snapshot had of one reading."""

    history: tuple[float | None, ...] = ()
    at: float = -math.inf
    update: float = -1.0
    """Before the first: some programs count from 0."""
    time: float = 0.0
    steps: float = 0.0


def in_order(curves: Iterable[Curve]) -> list[Curve]:
    """Those of the pulse first, the others as they come."""
    order = {name: place for place, name in enumerate(PULSE)}
    return sorted(curves, key=lambda curve: order.get(curve.name, len(order)))


def counts_text(snapshot: Snapshot) -> str:
    """Return `40 updates, 1,200 steps`: what was never counted may not be known, and is left out."""
    names = ("updates", "episodes", "steps")
    counts = [(snapshot.counters.get(name, 0.0), name) for name in names]
    return ", ".join(f"{count:,.0f} {name}" for count, name in counts if count) or "no updates"


class Curves:
    """Curves of one run, from its snapshots in order."""

    def __init__(self) -> None:
        self.policy: dict[str, Curve] = {}
        """By short name, in the order of the catalogue."""
        self.machine: dict[tuple[str, str | None], Curve] = {}
        """By field and lane: lanes, host and pace, a value a snapshot."""
        self.updates = 0
        """Updates that records of the policy stand for; 0 where only snapshots are left."""
        self.folded = 0
        """Those of them whose values are missing: each record has the values of its last."""
        self._seen: dict[str, _Seen] = {}
        self._measured: dict[str, list[tuple[int, float, float, float]]] = {}
        """By name what records hold beyond its curve: time in Unix nanoseconds, update, steps and value."""

    def measure(self, state: RunState, record: Record, stamp: int) -> None:
        """Go on with a record of the run, which was just folded into its state."""
        event, place = record.event, (float(state.update or 0), float(state.steps))
        samples = list(measured_numbers(state, record, stamp))
        for name, value in samples:
            self._measured.setdefault(safe(key_of(name)), []).append((event.at, *place, value))
        if samples and isinstance(event, Measured):
            updates = event.updates(None)
            self.updates += updates
            self.folded += max(updates - 1, 0)

    def take(self, snapshot: Snapshot, began: float) -> None:
        """Go on with one snapshot; `began` is the run's beginning, Unix seconds."""
        number = snapshot.run.update
        update = float(snapshot.counters.get("updates", 0.0) if number is None else number)
        steps = float(snapshot.run.steps or 0)
        for name, reading in {**snapshot.policy, **snapshot.services}.items():
            if self._measured.get(name) and name not in self.policy:
                self._new(name, reading)
            elif name not in self._measured and reading.age_s is not None and reading.history:
                self._take_reading(name, reading, snapshot.time - began, (update, steps))
        for name in self.policy.keys() & self._measured.keys():
            curve, samples = self.policy[name], self._measured[name]
            for at, *place, value in samples:
                newest = curve.time[-1] if len(curve) else 0.0
                curve.add(value, place[0], max(at / 1e9 - began, newest), place[1])
            samples.clear()
        self._take_machines(snapshot, (update, snapshot.time - began, steps))

    def past(self, began: float) -> Past:
        """What a collector would hold of the numbers of the policy, made of these."""
        past = Past()
        for curve in self.policy.values():
            name = name_of(curve.name) if curve.row is None else curve.row.name
            for update, time, value in zip(curve.update, curve.time, curve.value, strict=True):
                past.add(name, int((began + time) * 1e9), (value, value), round(update))
        return past

    def _take_reading(self, name: str, reading: Reading, now: float, place: tuple[float, float]) -> None:
        seen = self._seen.setdefault(name, _Seen())
        at = now - (reading.age_s or 0.0)
        if at - seen.at < _SAME_S:
            return
        update, steps = place
        fresh = fresh_values(seen.history, reading.history, round(update - seen.update))
        curve = self.policy.get(name) or self._new(name, reading)
        begin = seen.time if len(curve) else at
        for step in range(1, fresh + 1):
            share = step / fresh
            curve.add(
                reading.history[step - fresh - 1],
                max(0.0, update - fresh + step) if update - seen.update >= fresh
                else seen.update + share * (update - seen.update),
                begin + share * (at - begin),
                seen.steps + share * (steps - seen.steps),
            )  # fmt: skip
        self._seen[name] = _Seen(history=reading.history, at=at, update=update, time=at, steps=steps)

    def _new(self, name: str, reading: Reading) -> Curve:
        scope = next((one for one in (Scope.POLICY, *SERVICES) if row_of(name, one)), None)
        curve = Curve(
            name=name,
            label=reading.label or name,
            scope=scope or Scope.POLICY,
            direction=reading.direction,
        )
        self.policy[name] = curve
        return curve

    def _take_machines(self, snapshot: Snapshot, place: tuple[float, float, float]) -> None:
        for lane in snapshot.system.gpus:
            for name in LANE_FIELDS:
                self._take_value(name, Scope.GPU, getattr(lane, name), place, lane.gpu_id)
        if snapshot.system.host is not None:
            for name in HOST_FIELDS:
                self._take_value(name, Scope.HOST, getattr(snapshot.system.host, name), place)
        self._take_value(STEPS_PER_S, Scope.RUN, snapshot.run.steps_per_s, place)
        medians = [group.median_metric for group in snapshot.board.groups if group.median_metric is not None]
        self._take_value(
            TASK_METRIC, Scope.ENV, added(medians) / len(medians) if medians else None, place
        )  # fmt: skip

        counts = snapshot.board.counts
        bad = sum(count for word, count in counts.items() if word not in ("ok", "unknown"))
        self._take_value(NOT_OK, Scope.ENV, float(bad) if counts else None, place)

    def _take_value(
        self,
        name: str,
        scope: Scope,
        value: float | None,
        place: tuple[float, float, float],
        subject: str | None = None,
    ) -> None:
        if value is None:
            return
        curve = self.machine.get((name, subject))
        if curve is None:
            row = find(name, scope)
            label = row.label if row else name.replace("_", " ")
            curve = Curve(name=name, label=label, scope=scope, subject=subject)
            self.machine[name, subject] = curve
        curve.add(value, *place)


def fresh_values(before: Sequence[object], now: Sequence[object], likely: int) -> int:
    """How many values at the end of a history are new: as many as are likely, where that fits.

    Both hold the newest values of one series, and at least one of them is new. Of a number that stands still
    any count would fit; of others that overlap, only the right one.
    """
    most = len(now)
    if likely >= most and (any(one != now[0] for one in now) or list(now[:1]) != list(before[-1:])):
        likely = 1
    counts: list[int] = [min(max(1, likely), most), *range(1, most)]
    for fresh in counts:
        kept = most - fresh
        if kept <= len(before) and list(now[:kept]) == list(before[len(before) - kept :]):
            return fresh
    return most
