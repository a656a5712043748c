"""A rollout in records of bounded size, by whole steps; what its facts need of the steps before goes along.

Each record can be read without any other: it has the step before its own, and how many seeds germinated
before it. Rules: not for the trainer's thread. Must not know rings or how a column was given.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from overwatch.catalog.stages import Stage
from overwatch.events import Column, EpisodeEnded
from overwatch.sdk.frames import Rolled, Table
from overwatch.sdk.rollouts.columns import Span

Array: TypeAlias = np.ndarray
Names: TypeAlias = Mapping[str, str]

RECORD_BYTES: Final = 256 << 10
"""Of the largest record, unless one env's step is larger."""
_HEAD_BYTES: Final = 4096
"""For what a record has besides tables."""
_SEED_BYTES: Final = 4
_GERMINATED: Final = Stage.GERMINATED.code
_DORMANT: Final = Stage.DORMANT.code
_FRESH: Final = {"slot_stage": _DORMANT, "slot_blueprint": -1, "slot_age": -1, "slot_alpha": 0}
"""What a slot is before the first step of an episode."""
_LIFECYCLE: Final = (
    "slot_stage", "slot_blueprint", "slot_alpha", "slot_age", "slot_reason", "slot_style", "slot_curve",
    "slot_tempo",
)  # fmt: skip
_ENDS: Final = (
    "episode_return", "episode_length", "metric", "metric_best", "stalled_steps", "growth_ratio",
    "episode_fossils", "episode_prunes",
)  # fmt: skip
"""What is reported of an episode that ended."""
_FACTS: Final = (
    "op", "slot", "blueprint", "confidence", "second", "second_confidence", "third", "third_confidence",
    "governor", *_ENDS, "gate", "gate_slot", "gate_passed", "gate_score", "gate_failed",
)  # fmt: skip
_SHOWN: Final = ("slot_stage", "slot_blueprint")
"""Codes that the state of a slot shows, besides its numbers."""


@dataclass(slots=True)
class _Part:
    """Tables of one kind of record; each has the rows of the rollout, or one more before them."""

    is_fact: bool
    slots: int
    """Of an env."""
    tables: dict[str, dict[str, Array]]
    """By their field of `Rolled`."""
    before: frozenset[str] = frozenset()
    """Codes that have one row more."""
    seeds: Array | None = None
    """Germinated before the first row: N K."""
    germinated: Array | None = None
    """T N K."""

    @property
    def row_bytes(self) -> int:
        """Of one env at one step."""
        return sum(table[0, :1].nbytes for kind in self.tables.values() for table in kind.values())

    @property
    def extra_bytes(self) -> int:
        """Of one env in a record, however many steps it has."""
        before = sum(self.tables["codes"][name][0, :1].nbytes for name in self.before)
        return before + (0 if self.seeds is None else _SEED_BYTES * self.seeds.shape[1])


@dataclass(slots=True)
class _Memory:
    """What is known of some envs after their last step."""

    step: int
    tables: dict[str, Array]
    seeds: Array | None


class Cutter:
    """Cuts the rollouts of one run, in their order."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}
        """By the first of the envs."""

    def records(self, span: Span, tables: Mapping[str, Array], names: Names) -> Iterator[Rolled]:
        """The records; `names` gives the full name of each column that is a number."""
        slots = next((t.shape[2] for name, t in tables.items() if t.ndim == 3), 0)
        numbers = {full: tables[name] for name, full in names.items() if tables[name].ndim == 2}
        of_slots = {full: tables[name] for name, full in names.items() if tables[name].ndim != 2}
        shown = {name: tables[name] for name in _SHOWN if name in tables}
        kinds = {"numbers": numbers, "slot_numbers": of_slots, "codes": shown}
        for part in (_Part(is_fact=False, slots=slots, tables=kinds), self._facts(span, tables, slots)):
            if any(part.tables.values()):
                yield from _cut(span, part)

    def _facts(self, span: Span, tables: Mapping[str, Array], slots: int) -> _Part:
        codes = {name: tables[name] for name in _FACTS if name in tables}
        part = _Part(is_fact=True, slots=slots, tables={"codes": codes})
        ended = _ended(tables)
        if ended is None or "episode_return" not in tables:
            for name in _ENDS:
                codes.pop(name, None)
        cycle = {name: tables[name] for name in _LIFECYCLE if name in tables and "slot_stage" in tables}
        if ended is not None:
            cycle["ended"] = ended
        if cycle:
            memory = self._recall(span, cycle)
            whole = {
                name: np.concatenate([memory.tables[name][None], table]) for name, table in cycle.items()
            }
            codes |= whole
            part.before = frozenset(whole)
            if "slot_stage" in cycle and memory.seeds is not None:
                part.seeds, part.germinated = memory.seeds, germinated(whole)
                memory.seeds = memory.seeds + part.germinated.sum(axis=0, dtype="<i4")
            memory.step = span.last_step
            memory.tables = {name: table[-1].copy() for name, table in cycle.items()}
            self._known[span.env_first] = memory
        if set(codes) <= {"ended"}:
            codes.clear()
        return part

    def _recall(self, span: Span, cycle: Mapping[str, Array]) -> _Memory:
        """What is known of the step before; where nothing is, it was as the first step is."""
        known = self._known.get(span.env_first)
        stage = cycle.get("slot_stage")
        seeds = None if known is None else known.seeds
        if stage is not None and (seeds is None or seeds.shape != stage.shape[1:]):
            # One a step at most: a process that goes on at a later step names none as an earlier one.
            seeds = np.full(stage.shape[1:], span.first_step - 1, "<i4")
        if known is not None and known.step == span.first_step - 1 and _are_alike(known.tables, cycle):
            return _Memory(known.step, known.tables, seeds)
        tables = {name: table[0] for name, table in cycle.items()}
        if "ended" in tables:
            tables["ended"] = np.zeros_like(tables["ended"])
        if span.first_step == 1 and stage is not None:
            fresh = {name: value for name, value in _FRESH.items() if name in tables}
            tables |= {name: np.full_like(tables[name], value) for name, value in fresh.items()}
        return _Memory(span.first_step - 1, tables, seeds)

    def forget(self, span: Span) -> None:
        """A rollout of these envs cannot be cut: what comes next follows on nothing known."""
        if (known := self._known.get(span.env_first)) is not None:
            known.step = -1


def _are_alike(rows: Mapping[str, Array], tables: Mapping[str, Array]) -> bool:
    """Whether there is a row before each of these tables."""
    return all(name in rows and rows[name].shape == table.shape[1:] for name, table in tables.items())


def _ended(tables: Mapping[str, Array]) -> Array | None:
    given = [tables[name] for name in ("terminated", "truncated") if name in tables]
    return None if not given else np.bitwise_or.reduce(given)


def before_of(whole: Mapping[str, Array]) -> dict[str, Array]:
    """Of tables with one row more: what was before each step, after the reset of ended episodes."""
    before = {name: table[:-1] for name, table in whole.items()}
    ended = before.pop("ended", None)
    if ended is None or not ended.any():
        return before
    return {
        name: np.where(ended[:, :, None] != 0, table.dtype.type(_FRESH.get(name, 0)), table)
        for name, table in before.items()
    }


def germinated(whole: Mapping[str, Array]) -> Array:
    """T N K: where a seed germinated, of tables with one row more."""
    stages = {name: whole[name] for name in ("slot_stage", "ended") if name in whole}
    found: Array = (whole["slot_stage"][1:] == _GERMINATED) & (before_of(stages)["slot_stage"] != _GERMINATED)
    return found


def _cut(span: Span, part: _Part) -> Iterator[Rolled]:
    room, row, extra = RECORD_BYTES - _HEAD_BYTES, part.row_bytes, part.extra_bytes
    envs = max(1, min(span.envs, room // (row + extra)))
    steps = max(1, (room - envs * extra) // (envs * row))
    seeds = part.seeds
    for first in range(0, span.steps, steps):
        rows = slice(first, min(first + steps, span.steps))
        for env in range(0, span.envs, envs):
            yield _record(span, part, rows, slice(env, min(env + envs, span.envs)), seeds)
        if seeds is not None and part.germinated is not None:
            seeds = seeds + part.germinated[rows].sum(axis=0, dtype="<i4")


def _record(span: Span, part: _Part, rows: slice, envs: slice, seeds: Array | None) -> Rolled:
    def table(name: str, values: Array) -> Table:
        last = rows.stop + (name in part.before)
        return Table(values.dtype.newbyteorder("<").str, values[rows.start : last, envs].tobytes())

    tables: dict[str, Any] = {
        kind: {name: table(name, values) for name, values in of_kind.items()}
        for kind, of_kind in part.tables.items()
    }
    return Rolled(
        at=span.at(rows.stop - 1),
        at_first=span.at(rows.start),
        first_step=span.first_step + rows.start,
        steps=rows.stop - rows.start,
        env_first=span.env_first + envs.start,
        envs=envs.stop - envs.start,
        slots=part.slots,
        is_fact=part.is_fact,
        lane=span.lane,
        seeds=b"" if seeds is None else seeds[envs].astype("<i4").tobytes(),
        **tables,
    )


def reduced(span: Span, tables: Mapping[str, Array], names: Names) -> Iterator[Rolled | EpisodeEnded]:
    """Of a rollout that is too large: the mean of each env's numbers, and the episodes that ended."""
    means = {
        names[name]: np.mean(table, axis=0, dtype="<f8")[None]
        for name, table in tables.items()
        if name in names and table.ndim == 2
    }
    if means:
        last = dataclasses.replace(
            span, first_step=span.last_step, steps=1, at_first=span.at_last, at_last=span.at_last
        )
        for record in _cut(last, _Part(is_fact=False, slots=0, tables={"numbers": means})):
            yield msgspec.structs.replace(record, mean_of=span.steps)
    ended = _ended(tables)
    if ended is not None and "episode_return" in tables:
        for row in np.flatnonzero(ended.any(axis=1)).tolist():
            yield episodes(span, tables, row, ended[row])


def episodes(span: Span, tables: Mapping[str, Array], row: int, ended: Array) -> EpisodeEnded:
    """The episodes that ended at one step."""
    envs = np.flatnonzero(ended)

    def of_ended(name: str) -> Column | None:
        return Column.of(tables[name][row][envs]) if name in tables else None

    length, stalled = of_ended("episode_length"), of_ended("stalled_steps")
    best_step = None
    if length is not None and stalled is not None:
        best_step = Column.of((length.array() - stalled.array()).astype("<i4"))
    return EpisodeEnded(
        at=span.at(row),
        env_id=Column.of(envs.astype("<i8") + span.env_first),
        episode_return=Column.of(tables["episode_return"][row][envs]),
        length=length,
        metric=of_ended("metric"),
        best=of_ended("metric_best"),
        best_step=best_step,
        growth_ratio=of_ended("growth_ratio"),
        fossils=of_ended("episode_fossils"),
        prunes=of_ended("episode_prunes"),
        step=span.first_step + row,
    )
