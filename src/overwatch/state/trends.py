"""Short windows of each env's own numbers, and what it did last: for gains, for trends, for the drawer.

Rules: one sample at most each `STRIDE` steps and `STRIDE_NS`, so a window spans seconds at any rate; all
envs of a record are sampled at once. Must not know what a trend means.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from overwatch.state.arrays import Floats, Ints, floats, grown, ints
from overwatch.state.places import At, Rows

MEASURES: Final = ("reward", "return", "metric", "rent", "step_time")
"""Short names of the env rows that are kept as columns."""
TRENDED: Final = ("metric", "rent", "step_time")
SAMPLES: Final = 24
STRIDE: Final = 5
STRIDE_NS: Final = 500_000_000
ACTIONS: Final = 8
"""Actions remembered per env."""


class Trends(msgspec.Struct, kw_only=True):
    """Samples of each env's measures; arrays have capacity C rows."""

    values: dict[str, Floats] = msgspec.field(
        default_factory=lambda: {name: floats(0, SAMPLES) for name in TRENDED}
    )
    """Rings of samples, shape (C, SAMPLES); NaN where the value was absent."""
    step: Ints = msgspec.field(default_factory=lambda: ints(0, SAMPLES))
    """Env step of each sample."""
    at: Ints = msgspec.field(default_factory=lambda: ints(0, SAMPLES))
    """Producer's time of each sample; 0 = not taken."""
    count: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Samples taken of each env."""
    now: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Newest step of each env."""
    last_step: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env step of each env's newest sample."""
    last_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of it."""

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs."""
        for name in TRENDED:
            self.values[name] = grown(self.values[name], (rows, SAMPLES), np.nan)
        self.step = grown(self.step, (rows, SAMPLES), 0)
        self.at = grown(self.at, (rows, SAMPLES), 0)
        for name in ("count", "now", "last_step", "last_at"):
            setattr(self, name, grown(getattr(self, name), (rows,), 0))

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield from ((values, np.nan) for values in self.values.values())
        for array in (self.step, self.at, self.count, self.now, self.last_step, self.last_at):
            yield array, 0

    def sample(self, told: At, step: int | None, at: int, current: dict[str, Floats]) -> None:
        """Take a sample of those rows that are due; without a step number each record is one step."""
        span = told.span
        now = self.now[span] + 1 if step is None else np.maximum(self.now[span], step)
        self.now[span] = now
        if at < told.rested_until:
            return
        oldest = int(np.minimum.reduce(self.last_at[span], initial=at))
        if oldest:
            told.rested_until = oldest + STRIDE_NS
            if at < told.rested_until:
                return
        due = (at - self.last_at[span] >= STRIDE_NS) & (now - self.last_step[span] >= STRIDE)
        due |= self.count[span] == 0
        if due.any():
            rows = told.rows[due]
            places = self.count[rows] % SAMPLES
            # Envs that were born together have their samples in one column of the rings.
            if due.all() and (places == places[0]).all():
                self._take(span, int(places[0]), at, current)
            else:
                self._take(rows, places, at, current)

    def _take(self, due: Rows, place: Ints | int, at: int, current: dict[str, Floats]) -> None:
        for name in TRENDED:
            self.values[name][due, place] = current[name][due]
        self.step[due, place] = self.now[due]
        self.at[due, place] = at
        self.last_step[due], self.last_at[due] = self.now[due], at
        self.count[due] += 1

    def of(self, row: int) -> Ints:
        """Positions of one env's samples in its rings, oldest first."""
        taken = int(self.count[row])
        return np.arange(max(0, taken - SAMPLES), taken, dtype=np.int64) % SAMPLES


class Actions(msgspec.Struct, kw_only=True):
    """The newest operations of each env; codes of words, -1 where absent."""

    op: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    slot: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    blueprint: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    step: Ints = msgspec.field(default_factory=lambda: ints(0, ACTIONS, fill=-1))
    count: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Operations seen of each env."""
    streak: Ints = msgspec.field(default_factory=lambda: ints(0))
    """How often in a row each env did the newest one."""

    def resize(self, rows: int) -> None:
        """Make room for `rows` envs."""
        for name in ("op", "slot", "blueprint", "step"):
            setattr(self, name, grown(getattr(self, name), (rows, ACTIONS), -1))
        self.count = grown(self.count, (rows,), 0)
        self.streak = grown(self.streak, (rows,), 0)

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """What has a row an env, with what an unused row holds."""
        yield from ((array, -1) for array in (self.op, self.slot, self.blueprint, self.step))
        yield self.count, 0
        yield self.streak, 0

    def add(self, rows: Ints, op: Ints, slot: Ints, blueprint: Ints, step: int) -> None:
        """Remember one operation a row."""
        place = self.count[rows] % ACTIONS
        same = (self.count[rows] > 0) & (self.op[rows, place - 1] == op)
        self.streak[rows] = np.where(same, self.streak[rows] + 1, 1) * (op >= 0)
        self.op[rows, place] = op
        self.slot[rows, place] = slot
        self.blueprint[rows, place] = blueprint
        self.step[rows, place] = step
        self.count[rows] += 1

    def last(self, row: int) -> tuple[int, int]:
        """Codes of the newest (operation, slot) of one env; -1 where there is none."""
        taken = int(self.count[row])
        if not taken:
            return -1, -1
        place = (taken - 1) % ACTIONS
        return int(self.op[row, place]), int(self.slot[row, place])

    def of(self, row: int) -> Ints:
        """Positions of one env's operations in its rings, newest first."""
        taken = int(self.count[row])
        return np.arange(taken - 1, max(0, taken - ACTIONS) - 1, -1, dtype=np.int64) % ACTIONS
