"""Chunks of experience as rollouts: lanes of T steps, each of one environment, in order.

Owns what may be trained: a chunk that lacks a column or has a number that is not finite is refused by its
path, one that is too old or of an abandoned line is dropped; both are counted. Rules: chunks of an
environment keep their order; where a lane ends within a chunk, the rest begins the next lane of that
environment; a border between two chunks of an episode ends nothing; an episode that was truncated, or of
which the next steps are missing, is continued by the value of its final observation. One copy from the bytes
that came to the rollout. Must not know who serves chunks.

Shapes: T steps, N lanes, F places of a lane for final observations; others as in `types`.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Array, Chunk, Encoding
from overwatch_rl.training.experience import SUMMARY
from overwatch_rl.types import Observation, Rollout, WorldSpec

Loss: TypeAlias = Literal["refused", "late", "abandoned"]
"""Why a chunk is not trained: what it holds, its age, its line."""
NEEDED: Final = ("observation", "action", "log_probs", "value", "reward", FINAL_OBSERVATION)
"""Columns without which nothing is estimated; `mask` is there where the world has one."""
_FINITE: Final = ("log_probs", "value", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The size of a rollout, and what may be in it."""

    steps: int
    """T."""
    lanes: int
    """N."""
    max_age: int | None = None
    """Updates that a chunk may be behind the weights that it trains; `None` for any."""
    is_abandoned_used: bool = True
    """Whether what an abandoned line collected is trained, by importance weights."""
    is_rounded: bool = False
    """Whether actors act with rounded weights: then all of it is of another policy than the learner's."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive steps of one chunk."""

    chunk: Chunk
    columns: Mapping[str, Array]
    ledger: Ledger
    start: int
    stop: int

    @property
    def steps(self) -> int:
        """How many."""
        return self.stop - self.start

    @property
    def first_step(self) -> int:
        """Number of its first step in the episode."""
        return self.chunk.first_step + self.start

    @property
    def version(self) -> Version:
        """That acted."""
        return Version(self.chunk.lineage, self.chunk.version)

    def split(self, steps: int) -> "tuple[Part, Part]":
        """The first so many, and the others."""
        at = self.start + steps
        return (
            Part(self.chunk, self.columns, self.ledger, self.start, at),
            Part(self.chunk, self.columns, self.ledger, at, self.stop),
        )

    @property
    def final(self) -> Array:
        """The observation after its last step, where the episode did not terminate."""
        if self.stop < self.chunk.steps:
            following: Array = self.columns["observation"][self.stop]
            return following
        return self.columns[FINAL_OBSERVATION]

    @property
    def is_terminated(self) -> bool:
        """Whether the task itself ended with its last step."""
        return self.stop == self.chunk.steps and self.chunk.end == "terminated"

    @property
    def is_open(self) -> bool:
        """Whether its episode went on: what cut it was not the world."""
        return self.stop < self.chunk.steps or self.chunk.end == "cut"

    def is_continued_by(self, other: "Part") -> bool:
        """Whether the next part of its environment has the steps of its episode that follow it."""
        return (
            self.is_open
            and other.chunk.episode == self.chunk.episode
            and other.first_step == self.first_step + self.steps
        )


class RefusedError(ValueError):
    """A chunk that cannot be trained; the path of what is wrong, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """A rollout, and where its rows come from."""

    rollout: Rollout
    lanes: tuple[tuple[Part, ...], ...]

    def use(self) -> None:
        """All of it is in the weights."""
        for part in (part for lane in self.lanes for part in lane):
            part.ledger.use(part.chunk, part.steps)


def check_encoding(encoding: Encoding, expected: Encoding) -> None:
    """Raise `ValueError` naming the column in which a table differs from what the algorithm reads."""
    for name in NEEDED:
        if name not in encoding.by_name:
            raise ValueError(f"encoding.{name} is missing: the table has {', '.join(encoding.by_name)}")
    for name, column in expected.by_name.items():
        found = encoding.by_name.get(name)
        if found != column:
            raise ValueError(f"encoding.{name} is {found}; this learner reads {column}")


def on_device(rollout: Rollout, device: torch.device) -> Rollout:
    """The same where it is learned from; copied from pinned memory, so that the host waits for nothing."""
    if device.type == "cpu":
        return rollout

    def moved(column: Tensor) -> Tensor:
        return column.pin_memory().to(device, non_blocking=True)

    own = {one.name: getattr(rollout, one.name) for one in fields(rollout)}
    columns = {name: moved(value) for name, value in own.items() if isinstance(value, Tensor)}
    seen = rollout.last
    last = Observation(features=moved(seen.features), mask=None if seen.mask is None else moved(seen.mask))
    return replace(rollout, last=last, **cast("Any", columns))


class Batches:
    """What has come and was not trained yet, by environment."""

    def __init__(
        self,
        spec: WorldSpec,
        limits: Limits,
        age: Callable[[Version], Age],
        lost: Callable[[Loss, int, str], None] = lambda _loss, _steps, _why: None,
    ) -> None:
        """`age` is asked as a rollout is made; `lost` is given why steps are not trained, how many, which."""
        self._spec = spec
        self._limits = limits
        self._age = age
        self._lost = lost
        self._waiting: dict[str, deque[Part]] = {}
        self._lanes: deque[tuple[Part, ...]] = deque()

    @property
    def steps(self) -> int:
        """Steps that wait, whole lanes and others."""
        waiting = sum(part.steps for parts in self._waiting.values() for part in parts)
        return waiting + len(self._lanes) * self._limits.steps

    def add(self, encoding: Encoding, chunks: Sequence[Chunk], lease: int, ledger: Ledger) -> None:
        """Take the chunks of a lease, in their order."""
        used = ledger.came(lease, chunks)
        for chunk, count in zip(chunks, used, strict=True):
            if count == chunk.steps:
                continue
            try:
                columns = decoded(chunk, encoding)
            except RefusedError as error:
                self._lose("refused", chunk, chunk.steps - count, ledger, str(error))
                continue
            part = Part(chunk, columns, ledger, count, chunk.steps)
            self._waiting.setdefault(chunk.env, deque()).append(part)
            self._fill(chunk.env)

    def take(self) -> TrainingBatch | None:
        """The next rollout; `None` where there are too few lanes. What grew too old is dropped before."""
        self._drop_old()
        if len(self._lanes) < self._limits.lanes:
            return None
        lanes = tuple(self._lanes.popleft() for _ in range(self._limits.lanes))
        return TrainingBatch(rollout=self._rollout(lanes), lanes=lanes)

    def _fill(self, env: str) -> None:
        """Make lanes of an environment's steps while there are enough."""
        parts = self._waiting[env]
        while sum(part.steps for part in parts) >= self._limits.steps:
            lane, room = [], self._limits.steps
            while room:
                part = parts.popleft()
                if part.steps > room:
                    part, rest = part.split(room)
                    parts.appendleft(rest)
                lane.append(part)
                room -= part.steps
            self._lanes.append(tuple(lane))
        if not parts:
            del self._waiting[env]

    def _drop_old(self) -> None:
        """Drop what may not be trained any more; what a lane has besides waits again."""
        kept = [lane for lane in self._lanes if self._loss(lane) is None]
        if len(kept) < len(self._lanes):
            broken = [lane for lane in self._lanes if self._loss(lane) is not None]
            self._lanes = deque(kept)
            for lane in reversed(broken):
                self._waiting.setdefault(lane[0].chunk.env, deque()).extendleft(reversed(lane))
        for env in list(self._waiting):
            parts = self._waiting[env]
            for part in [one for one in parts if self._loss((one,)) is not None]:
                loss = self._loss((part,))
                if loss is None:
                    raise AssertionError("a part is as old as it was")
                parts.remove(part)
                self._lose(loss, part.chunk, part.steps, part.ledger, f"version {part.version}")
            self._fill(env)

    def _loss(self, lane: Sequence[Part]) -> Loss | None:
        for part in lane:
            age = self._age(part.version)
            if age.is_abandoned and not self._limits.is_abandoned_used:
                return "abandoned"
            if self._limits.max_age is not None and age.updates > self._limits.max_age:
                return "late"
        return None

    def _lose(self, loss: Loss, chunk: Chunk, steps: int, ledger: Ledger, why: str) -> None:
        ledger.use(chunk, steps)
        self._lost(loss, steps, why)

    def _rollout(self, lanes: Sequence[Sequence[Part]]) -> Rollout:
        steps, count = self._limits.steps, len(lanes)
        ends = _Ends(self._spec, steps, count, _places(self._spec, steps, lanes))
        stored = {name: _storage(steps, count, column) for name, column in lanes[0][0].columns.items()
                  if name not in (FINAL_OBSERVATION, SUMMARY)}  # fmt: skip
        ages = torch.zeros(steps, count, dtype=torch.int64)
        for number, lane in enumerate(lanes):
            at = 0
            for part, is_end in zip(lane, _are_ends(lane), strict=True):
                rows = slice(at, at + part.steps)
                for name, storage in stored.items():
                    storage[rows, number] = part.columns[name][part.start : part.stop]
                ages[rows, number] = self._age(part.version).updates
                at += part.steps
                if is_end:
                    ends.add(number, at - 1, part)
        columns = {name: torch.from_numpy(storage) for name, storage in stored.items()}
        is_own = not self._limits.is_rounded and not bool(ages.any())
        return ends.rollout(columns, None if is_own else ages)


class _Ends:
    """How the steps of lanes go on where something ends."""

    def __init__(self, spec: WorldSpec, steps: int, lanes: int, places: int) -> None:
        seen = spec.observation
        self._steps = steps
        self._terminated = torch.zeros(steps, lanes, dtype=torch.bool)
        self._truncated = torch.zeros(steps, lanes, dtype=torch.bool)
        self._final = torch.zeros(places, lanes, *seen.shape, dtype=seen.dtype)
        self._final_at = torch.full((places, lanes), steps)
        self._last = torch.zeros(lanes, *seen.shape, dtype=seen.dtype)
        self._filled = [0] * lanes

    def add(self, lane: int, step: int, part: Part) -> None:
        """`part` ends at `step`."""
        if part.is_terminated:
            self._terminated[step, lane] = True
        elif part.is_open and step == self._steps - 1:
            self._last[lane] = _copied(part.final)
        else:
            place = self._filled[lane]
            self._truncated[step, lane] = True
            self._final[place, lane] = _copied(part.final)
            self._final_at[place, lane] = step
            self._filled[lane] = place + 1

    def rollout(self, columns: Mapping[str, Tensor], ages: Tensor | None) -> Rollout:
        """With the columns of the steps, T N ... each."""
        has_finals = len(self._final) > 0
        return Rollout(
            features=columns["observation"],
            mask=columns.get("mask"),
            actions=columns["action"],
            log_probs=columns["log_probs"],
            values=columns["value"],
            rewards=columns["reward"],
            terminated=self._terminated,
            truncated=self._truncated,
            final=self._final if has_finals else None,
            final_at=self._final_at if has_finals else None,
            last=Observation(features=self._last),
            columns={},
            age=ages,
        )


def decoded(chunk: Chunk, encoding: Encoding) -> dict[str, Array]:
    """The columns of a chunk, over its own bytes. Raises `RefusedError` with the path of what is wrong."""
    try:
        columns = encoding.decode(chunk)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    for name in _FINITE:
        finite = np.isfinite(columns[name])
        if not finite.all():
            step = int(np.argwhere(~finite)[0][0])
            raise RefusedError(f"{chunk.env}.{name}[{step}] is {columns[name][step]}: not finite")
    return columns


def _places(spec: WorldSpec, steps: int, lanes: Sequence[Sequence[Part]]) -> int:
    """F: as a rollout that was collected here would have, and as many as are needed."""
    horizon = 0 if spec.horizon is None else math.ceil(steps / spec.horizon)
    needed = max(
        sum(is_end and not part.is_terminated for part, is_end in zip(lane, _are_ends(lane), strict=True))
        - lane[-1].is_open
        for lane in lanes
    )
    return max(horizon, needed)


def _are_ends(lane: Sequence[Part]) -> list[bool]:
    """Of each part, whether its episode or the lane ends with it, or steps are missing after it."""
    return [*(not part.is_continued_by(other) for part, other in pairwise(lane)), True]


def _storage(steps: int, lanes: int, column: Array) -> Array:
    return np.empty((steps, lanes, *column.shape[1:]), column.dtype.newbyteorder("="))


def _copied(row: Array) -> Tensor:
    """A tensor of its own: what came is read-only."""
    return torch.from_numpy(row.copy())
