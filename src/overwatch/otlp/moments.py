"""Values of many points as few measurements: those of one moment and the same subjects are one.

A point's subject is the ids that its row's scope demands.

Rules: one export of a policy is one update; a non-finite value of a critical row adds `NonFiniteSeen`; a
value that ended is an empty column, of a lane or a slot NaN. Must not know messages, or in which form a
value came.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from overwatch import catalog
from overwatch.catalog import NonFinite, Scope
from overwatch.events import Column, EnvsRemoved, Event, Measured, NonFiniteSeen, Origin, Record
from overwatch.otlp import wire
from overwatch.otlp.value import Value, as_whole, as_word

Subject: TypeAlias = tuple[int | str, ...]
"""Ids of what a point is about; of an env its id and, where the point names one, its lane."""

NEEDS: Final = {
    Scope.ENV: f"{wire.ENV_ID} (an integer)",
    Scope.SLOT: f"{wire.ENV_ID} (an integer) and {wire.SLOT_ID}",
    Scope.GPU: f"{wire.LANE_ID} or hw.id",
}
"""What the points of a scope must name, for a person."""

_TOTALS: Final = {"system.memory.usage": ("system.memory.state", "used")}
"""Host rows that come split by an attribute, and the part that is meant."""
_SPLITS: Final = frozenset(
    {
        "cpu", "cpu.mode", "cpu.logical_number", "state", "system.memory.state", "device", "mountpoint",
        "system.device", "system.filesystem.mountpoint",
    }
)  # fmt: skip
"""Attributes of parts: one core, one state, one of several disks of which none is known as the run's own."""

MAX_OFFENDERS: Final = 16

_SEVERAL: Final = frozenset({Scope.ENV, Scope.GPU, Scope.SLOT})
"""Scopes of several subjects, where an end is of some of them."""

_Moment: TypeAlias = tuple[Origin, int, Scope, int]
"""Points of one moment also name equally many ids of their subjects: the last part is how many."""


class Moments:
    """Values by moment, then by metric, then by subject."""

    def __init__(self) -> None:
        self._values: dict[_Moment, dict[str, dict[Subject, float]]] = {}
        self._ends: dict[tuple[Origin, int, Scope], dict[str, list[Subject]]] = {}
        """Subjects whose value has no more points, by moment, then by metric."""

    def copy(self, stamp: int = 0) -> "Moments":
        """The same values, to which others may be put; those without a time are of `stamp`."""
        other = Moments()
        for (origin, at, scope, ids), metrics in self._values.items():
            values = other._values.setdefault((origin, at or stamp, scope, ids), {})
            for name, points in metrics.items():
                values.setdefault(name, {}).update(points)
        for (origin, at, scope), ended in self._ends.items():
            ends = other._ends.setdefault((origin, at or stamp, scope), {})
            for name, subjects in ended.items():
                ends.setdefault(name, []).extend(subjects)
        return other

    def placed(self, values: Sequence[float], times: Sequence[int]) -> "Moments":
        """Where the values are places in `values` and in `times`: the same with what is there."""
        other = Moments()
        for (origin, _, scope, ids), metrics in self._values.items():
            some = next(iter(next(iter(metrics.values())).values()))
            other._values[origin, times[int(some)], scope, ids] = {
                name: {subject: values[int(place)] for subject, place in points.items()}
                for name, points in metrics.items()
            }
        return other

    def put(self, origin: Origin, at: int, row: catalog.Metric, subject: Subject, value: float) -> None:
        """Take a value; of several for one subject the last one counts."""
        self.name(origin, at, row.scope, row.name, subject)[subject] = value

    def name(
        self, origin: Origin, at: int, scope: Scope, name: str, subject: Subject
    ) -> dict[Subject, float]:
        """The values of one metric, by subject."""
        moment = self._values.setdefault((origin, at, scope, len(subject)), {})
        return moment.setdefault(name, {})

    def end(self, origin: Origin, at: int, row: catalog.Metric, subject: Subject) -> None:
        """Take the end of a value; one of labels has none."""
        if row.scope in _SEVERAL or not subject:
            self._ends.setdefault((origin, at, row.scope), {}).setdefault(row.name, []).append(subject)

    def records(self) -> Iterator[Record]:
        """Everything taken, in order of first sight."""
        for moment, metrics in self._values.items():
            yield from _records(moment, metrics)
        for (origin, at, scope), ended in self._ends.items():
            yield from (Record(origin=origin, event=event) for event in _ended(at, scope, ended))


def _records(moment: _Moment, metrics: dict[str, dict[Subject, float]]) -> Iterator[Record]:
    origin, at, scope, num_ids = moment
    alike: dict[tuple[Subject, ...], dict[str, Column]] = {}
    for name, points in metrics.items():
        alike.setdefault(tuple(points), {})[name] = Column.of(list(points.values()))
    for subjects, values in alike.items():
        keys = keys_of(scope, subjects)
        if scope is Scope.ENV and num_ids > 1:
            values["lane"] = Column.of_labels([str(subject[1]) for subject in subjects])
        yield Record(origin=origin, event=Measured(at=at, scope=scope, values=values, keys=keys))
    for name, points in metrics.items():
        seen = _non_finite(at, scope, name, points)
        if seen is not None:
            yield Record(origin=origin, event=seen)


def _ended(at: int, scope: Scope, ended: dict[str, list[Subject]]) -> Iterator[Event]:
    """That values have no more points, those of the same subjects together."""
    if scope not in _SEVERAL:
        # An end is no update of the policy, so it is of the run.
        where = Scope.RUN if scope is Scope.POLICY else scope
        yield Measured(at=at, scope=where, values=dict.fromkeys(ended, Column(dtype="<f8", data=b"")))
        return
    alike: dict[tuple[Subject, ...], list[str]] = {}
    for name, subjects in ended.items():
        of_env = sorted({subject[:1] for subject in subjects}) if scope is Scope.ENV else subjects
        alike.setdefault(tuple(dict.fromkeys(of_env)), []).append(name)
    for same, names in alike.items():
        if scope is Scope.ENV:
            env_ids = Column.of([int(subject[0]) for subject in same])
            yield EnvsRemoved(at=at, env_id=env_ids, metrics=tuple(names))
        else:
            nothing = Column.of([math.nan] * len(same))
            yield Measured(
                at=at, scope=scope, keys=keys_of(scope, same), values=dict.fromkeys(names, nothing)
            )


def _non_finite(at: int, scope: Scope, name: str, points: dict[Subject, float]) -> NonFiniteSeen | None:
    row = catalog.BY_NAME.get(name)
    if row is None or row.non_finite is not NonFinite.CRITICAL:
        return None
    bad = {subject: value for subject, value in points.items() if not math.isfinite(value)}
    if not bad:
        return None
    envs = [subject[0] for subject in bad if subject]
    return NonFiniteSeen(
        at=at,
        scope=scope,
        metric=name,
        kind="nan" if any(math.isnan(value) for value in bad.values()) else "inf",
        count=len(bad),
        env_ids=tuple(env for env in dict.fromkeys(envs) if isinstance(env, int))[:MAX_OFFENDERS],
    )


def subject_of(scope: Scope, attributes: Mapping[str, Value]) -> Subject | None:
    """What a point is about; `()` where its scope has one subject, `None` when that is not named."""
    if scope is Scope.GPU:
        lane = _word(attributes.get(wire.LANE_ID)) or _word(attributes.get("hw.id"))
        return None if lane is None else (lane,)
    if scope not in (Scope.ENV, Scope.SLOT):
        return ()
    env_id = as_whole(attributes.get(wire.ENV_ID))
    if env_id is None:
        return None
    if scope is Scope.ENV:
        lane = _word(attributes.get(wire.LANE_ID))
        return (env_id, lane) if lane else (env_id,)
    slot = _word(attributes.get(wire.SLOT_ID))
    return None if slot is None else (env_id, slot)


def _word(value: Value) -> str | None:
    """Text, of which the beginning counts: a resource names it once, for all of its points."""
    word = as_word(value)
    return None if word is None else word[: wire.LONGEST_ID]


def is_meant(row: catalog.Metric, attributes: Mapping[str, Value]) -> bool:
    """Whether a point of the row's name is what the row means: not a part, not another device's."""
    if any(attributes.get(name, value) != value for name, value in row.attributes.items()):
        return False
    if row.scope is not Scope.HOST:
        return True
    part = _TOTALS.get(row.name)
    if part is not None and attributes.get(part[0]) == part[1]:
        return True
    return not _SPLITS & attributes.keys()


def keys_of(scope: Scope, subjects: Sequence[Subject]) -> dict[str, Column]:
    """The ids of subjects as a measurement's keys."""
    match scope:
        case Scope.GPU:
            return {"gpu_id": Column.of_labels([str(subject[0]) for subject in subjects])}
        case Scope.ENV:
            return {"env_id": Column.of([int(subject[0]) for subject in subjects])}
        case Scope.SLOT:
            return {
                "env_id": Column.of([int(subject[0]) for subject in subjects]),
                "slot": Column.of_labels([str(subject[1]) for subject in subjects]),
            }
        case _:
            return {}
