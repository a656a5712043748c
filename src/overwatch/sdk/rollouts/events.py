"""A record of a rollout as the events that per-step calls make: what changed, in words, with its time.

Pure; for the exporter's process. Must not know rings or the trainer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from overwatch.catalog import Scope
from overwatch.catalog.stages import BY_CODE
from overwatch.events import (
    ActionTaken,
    Column,
    Conflated,
    EnvRolledBack,
    Event,
    GateEvaluated,
    Measured,
    SeedStageChanged,
)
from overwatch.sdk.frames import Rolled, Table
from overwatch.sdk.rollouts.columns import SLOTS, STAGES, Span, WordTables
from overwatch.sdk.rollouts.cut import before_of, episodes, germinated

Array: TypeAlias = np.ndarray

_STAGE: Final = "overwatch.slot.stage"


def events_of(rolled: Rolled, words: WordTables | None) -> Iterator[Event]:
    """The events of a record, step by step; raises `ValueError` or `LookupError` for one that is none."""
    opened = _Opened.of(rolled, words or WordTables())
    yield from _facts(opened) if rolled.is_fact else _numbers(opened)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A record whose tables can be read."""

    rolled: Rolled
    words: WordTables
    span: Span
    codes: dict[str, Array]
    env_id: Column
    """Of each env."""

    @classmethod
    def of(cls, rolled: Rolled, words: WordTables) -> "_Opened":
        span = Span(
            first_step=rolled.first_step, steps=rolled.steps, env_first=rolled.env_first, envs=rolled.envs,
            at_first=rolled.at_first, at_last=rolled.at, lane=rolled.lane,
        )  # fmt: skip
        codes = {name: _array(table, rolled, name) for name, table in rolled.codes.items()}
        return cls(rolled, words, span, codes, _ids(range(rolled.env_first, rolled.env_first + rolled.envs)))


def _array(table: Table, rolled: Rolled, name: str) -> Array:
    shape = (-1, rolled.envs, rolled.slots) if name.startswith(SLOTS) else (-1, rolled.envs)
    return np.frombuffer(table.data, table.dtype).reshape(shape)


def _ids(envs: Sequence[int] | Array) -> Column:
    return Column.of(np.asarray(envs, "<i8"))


def labelled(codes: Array, words: Sequence[str]) -> Column:
    """A column of words as `Column.of_labels` makes it: labels in the order in which they come first."""
    flat = codes.reshape(-1).astype("<i4")
    first = np.full(len(words), flat.size, "<i8")
    present = np.flatnonzero(flat >= 0)[::-1]
    first[flat[present]] = present
    order = np.argsort(first, kind="stable")[: int(np.count_nonzero(first < flat.size))]
    places = np.full(len(words) + 1, -1, "<i4")
    places[order] = np.arange(order.size)
    return Column(
        dtype="<i4", data=places[flat].tobytes(), labels=tuple(words[code] for code in order.tolist())
    )


def _numbers(opened: _Opened) -> Iterator[Event]:
    rolled, span = opened.rolled, opened.span
    lane = {} if rolled.lane is None else {"lane": Column.of_labels([rolled.lane] * rolled.envs)}
    conflated = None
    if rolled.mean_of > 1:
        conflated = Conflated(n=rolled.mean_of, first=rolled.first_step - rolled.mean_of + 1)
    slots = _slot_keys(opened) if rolled.slots else {}
    for row in range(rolled.steps):
        at, index = span.at(row), rolled.first_step + row
        if rolled.numbers:
            values = {name: _row(table, row, rolled.steps) for name, table in rolled.numbers.items()}
            yield Measured(
                at=at, scope=Scope.ENV, keys={"env_id": opened.env_id}, values=values | lane, index=index,
                conflated=conflated,
            )  # fmt: skip
        values = {name: _row(table, row, rolled.steps) for name, table in rolled.slot_numbers.items()}
        if "slot_stage" in opened.codes:
            values[_STAGE] = labelled(opened.codes["slot_stage"][row], STAGES)
        if "slot_blueprint" in opened.codes:
            values["blueprint"] = labelled(opened.codes["slot_blueprint"][row], opened.words.blueprints)
        if values:
            yield Measured(at=at, scope=Scope.SLOT, keys=slots, values=values, index=index)


def _row(table: Table, row: int, steps: int) -> Column:
    width = len(table.data) // steps
    return Column(dtype=table.dtype, data=table.data[row * width : (row + 1) * width])


def _slot_keys(opened: _Opened) -> dict[str, Column]:
    envs = np.repeat(opened.env_id.array(), opened.rolled.slots)
    return {"env_id": _ids(envs), "slot": Column.of_labels(list(opened.words.slots) * opened.rolled.envs)}


def _facts(opened: _Opened) -> Iterator[Event]:
    codes, span = opened.codes, opened.span
    lives = _Lives(opened) if "slot_stage" in codes else None
    ended = codes["ended"][1:] if "ended" in codes and "episode_return" in codes else None
    for row in range(span.steps):
        if "op" in codes:
            yield _action(opened, row)
        if "gate" in codes:
            yield from _gates(opened, row, lives)
        if "governor" in codes:
            yield from _rollbacks(opened, row)
        if lives is not None:
            yield from lives.changes(row)
        if ended is not None and ended[row].any():
            yield episodes(span, codes, row, ended[row])


def _action(opened: _Opened, row: int) -> ActionTaken:
    codes, words = opened.codes, opened.words
    op = codes["op"][row]

    def argument(name: str) -> Column | None:
        """Return the labels of an argument; -1 where the operation has none."""
        head = words.head(name)
        if name not in codes or head is None:
            return None
        used = np.array([row[head] for row in words.uses] or [True] * len(words.ops), bool)
        return labelled(np.where(used[op] & (op >= 0), codes[name][row], -1), words.heads[head][1])

    def share(name: str) -> Column | None:
        return Column.of(codes[name][row]) if name in codes else None

    def other(name: str) -> Column | None:
        return labelled(codes[name][row], words.ops) if name in codes else None

    return ActionTaken(
        at=opened.span.at(row), env_id=opened.env_id, op=labelled(op, words.ops), slot=argument("slot"),
        blueprint=argument("blueprint"), step=opened.span.first_step + row, confidence=share("confidence"),
        second=other("second"), second_confidence=share("second_confidence"),
        third=other("third"), third_confidence=share("third_confidence"),
    )  # fmt: skip


def _rollbacks(opened: _Opened, row: int) -> Iterator[EnvRolledBack]:
    codes = opened.codes["governor"][row]
    for env in np.flatnonzero(codes >= 0).tolist():
        yield EnvRolledBack(
            at=opened.span.at(row), env_id=opened.rolled.env_first + env,
            reason=opened.words.panics[int(codes[env])], step=opened.span.first_step + row,
        )  # fmt: skip


class _Lives:
    """The lives of seeds over the steps of a record."""

    def __init__(self, opened: _Opened) -> None:
        codes, rolled = opened.codes, opened.rolled
        self._opened = opened
        names = ("slot_stage", "slot_blueprint", "slot_alpha", "slot_age", "ended")
        whole = {name: codes[name] for name in names if name in codes}
        self._before = before_of(whole)
        self._now = {name: codes[name][1:] for name in codes if name.startswith(SLOTS)}
        counts = np.frombuffer(rolled.seeds, "<i4").reshape(rolled.envs, rolled.slots)
        self._seeds = counts + np.cumsum(germinated(whole), axis=0, dtype="<i4")
        self._moved = self._now["slot_stage"] != self._before["slot_stage"]

    def seed_id(self, row: int, env: int, slot: int) -> str:
        """A seed's name: its env, its slot, and its number there, which rises."""
        name = self._opened.words.slots[slot]
        return f"{self._opened.rolled.env_first + env}-{name}-{int(self._seeds[row, env, slot])}"

    def changes(self, row: int) -> Iterator[SeedStageChanged]:
        """The moves of one step."""
        opened, words = self._opened, self._opened.words
        for env, slot in np.argwhere(self._moved[row]).tolist():
            at = (row, env, slot)
            alpha, age = self._before.get("slot_alpha"), self._before.get("slot_age")
            reason = int(self._now["slot_reason"][at]) if "slot_reason" in self._now else -1
            yield SeedStageChanged(
                at=opened.span.at(row),
                env_id=opened.rolled.env_first + env,
                slot=words.slots[slot],
                seed_id=self.seed_id(*at),
                before=BY_CODE[int(self._before["slot_stage"][at])],
                after=BY_CODE[int(self._now["slot_stage"][at])],
                blueprint=self._blueprint(*at),
                alpha=None if alpha is None or np.isnan(alpha[at]) else float(alpha[at]),
                age=None if age is None else int(age[at]) + 1,
                reason=words.reasons[reason] if reason >= 0 else None,
                fields=self._fields(*at),
            )

    def _fields(self, row: int, env: int, slot: int) -> dict[str, str]:
        """How the seed is blended, and how large it is."""
        words, found = self._opened.words, {}
        for name, kinds in (("style", words.styles), ("curve", words.curves), ("tempo", words.tempos)):
            table = self._now.get(f"{SLOTS}{name}")
            if table is not None and int(table[row, env, slot]) >= 0:
                found[name] = kinds[int(table[row, env, slot])]
        blueprint = self._now.get("slot_blueprint")
        if words.sizes and blueprint is not None and int(blueprint[row, env, slot]) >= 0:
            found["parameters"] = str(words.sizes[int(blueprint[row, env, slot])])
        return found

    def _blueprint(self, row: int, env: int, slot: int) -> str | None:
        """What it grows into; of a slot that was cleared, what it had grown into."""
        for tables in (self._now, self._before):
            code = int(tables["slot_blueprint"][row, env, slot]) if "slot_blueprint" in tables else -1
            if code >= 0:
                return self._opened.words.blueprints[code]
        return None


def _gates(opened: _Opened, row: int, lives: _Lives | None) -> Iterator[GateEvaluated]:
    codes, words = opened.codes, opened.words
    for env in np.flatnonzero(codes["gate"][row] >= 0).tolist():
        at = (row, env)
        gate, checks = words.gates[int(codes["gate"][at])]
        slot = int(codes["gate_slot"][at])
        score = float(codes["gate_score"][at]) if "gate_score" in codes else np.nan
        failed = int(codes["gate_failed"][at]) if "gate_failed" in codes else 0
        if slot < 0:
            continue
        yield GateEvaluated(
            at=opened.span.at(row),
            env_id=opened.rolled.env_first + env,
            slot=words.slots[slot],
            seed_id="" if lives is None else lives.seed_id(row, env, slot),
            gate=gate,
            passed=bool(codes["gate_passed"][at]),
            score=None if np.isnan(score) else score,
            checks_passed=tuple(name for bit, name in enumerate(checks) if not failed >> bit & 1),
            checks_failed=tuple(name for bit, name in enumerate(checks) if failed >> bit & 1),
        )
