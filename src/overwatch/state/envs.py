"""The envs of one run as a struct of arrays, with their slots as a grid (env × slot).

Owns which env has which row. Rows are never reused for another env, so an index stays valid.
A value counts as present when its time is above 0. Arrays fold whole columns at once.
"""

import msgspec
import numpy as np

from overwatch.state.arrays import Floats, Ints, floats, grown, ints

MEASURES = ("reward", "metric", "rent", "step_time")
"""Short names of the env rows that are kept as columns."""
RETURNS = 10
"""Finished episodes remembered per env."""


class Envs(msgspec.Struct, kw_only=True):
    """All envs seen. Arrays have capacity C ≥ n rows; only the first n are in use."""

    n: int = 0
    ids: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env id of each row."""
    seen_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of the env's newest record."""
    lane: Ints = msgspec.field(default_factory=lambda: ints(0, fill=-1))
    """Index into the run's lane names; -1 unknown."""
    values: dict[str, Floats] = msgspec.field(default_factory=lambda: {name: floats(0) for name in MEASURES})
    times: dict[str, Ints] = msgspec.field(default_factory=lambda: {name: ints(0) for name in MEASURES})
    """Producer's time of each value; 0 = never measured."""
    returns: Floats = msgspec.field(default_factory=lambda: floats(0, RETURNS))
    """Ring of finished episodes' returns, shape (C, RETURNS)."""
    episodes: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Finished episodes of each env."""
    op: Ints = msgspec.field(default_factory=lambda: ints(0, fill=-1))
    """Last operation, index into the run's operation names."""
    op_slot: Ints = msgspec.field(default_factory=lambda: ints(0, fill=-1))
    crashed_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of the crash; 0 while the env lives."""
    non_finite_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    crashes: dict[int, str] = msgspec.field(default_factory=dict)
    """Last crash message by env id."""
    non_finite: dict[int, str] = msgspec.field(default_factory=dict)
    """Last non-finite field by env id."""
    stage: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    """Stage code of each (env, slot); -1 = no such slot in this env."""
    blueprint: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    alpha: Floats = msgspec.field(default_factory=lambda: floats(0, 0))
    age: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    gates: dict[str, str] = msgspec.field(default_factory=dict)
    """Last gate of a seed's slot, by `env/slot`, as shown: `G2 passed`."""

    def rows(self, env_ids: Ints) -> Ints:
        """Row of each env id, shape (k,); unseen ids get new rows."""
        order = np.argsort(self.ids[: self.n], kind="stable")
        known = self.ids[: self.n][order]
        unseen = np.setdiff1d(env_ids, known)
        if unseen.size:
            self._add(unseen)
            order = np.argsort(self.ids[: self.n], kind="stable")
            known = self.ids[: self.n][order]
        return order[np.searchsorted(known, env_ids)]

    def row(self, env_id: int) -> int:
        """Row of one env id; an unseen id gets a new row."""
        return int(self.rows(np.array([env_id], dtype=np.int64))[0])

    def find(self, env_id: int) -> int | None:
        """Row of an env id that was seen, else `None`."""
        found = np.flatnonzero(self.ids[: self.n] == env_id)
        return int(found[0]) if found.size else None

    def touch(self, rows: Ints, at: int) -> None:
        """These envs spoke at `at`; a crashed env that speaks again lives again."""
        self.seen_at[rows] = np.maximum(self.seen_at[rows], at)
        self.crashed_at[rows] = np.where(self.crashed_at[rows] < at, 0, self.crashed_at[rows])

    def measure(self, name: str, rows: Ints, values: Floats, at: int) -> None:
        """Fold one column of one measure."""
        self.values[name][rows] = values
        self.times[name][rows] = at

    def finish_episodes(self, rows: Ints, returns: Floats) -> None:
        """Remember the returns of episodes that ended, at most one a row a call."""
        self.returns[rows, self.episodes[rows] % RETURNS] = returns
        self.episodes[rows] += 1

    def mean_return(self) -> Floats:
        """Mean of each env's remembered returns, shape (n,); NaN before the first episode."""
        used = self.returns[: self.n]
        counts = np.minimum(self.episodes[: self.n], RETURNS)
        total = np.where(np.arange(RETURNS) < counts[:, None], used, 0.0).sum(axis=1)
        means: Floats = np.divide(total, counts, out=floats(self.n), where=counts > 0)
        return means

    def fit_slots(self, num_slots: int) -> None:
        """Make room for `num_slots` slots in the grid."""
        if num_slots <= self.stage.shape[1]:
            return
        shape = (self.stage.shape[0], max(num_slots, 2 * self.stage.shape[1]))
        self._resize_grid(shape)

    def _add(self, env_ids: Ints) -> None:
        need = self.n + env_ids.size
        capacity = self.ids.shape[0]
        if need > capacity:
            self._resize(max(need, 2 * capacity, 16))
        self.ids[self.n : need] = env_ids
        self.n = need

    def _resize(self, rows: int) -> None:
        for name, fill in (
            ("ids", 0), ("seen_at", 0), ("lane", -1), ("episodes", 0), ("op", -1), ("op_slot", -1),
            ("crashed_at", 0), ("non_finite_at", 0),
        ):  # fmt: skip
            setattr(self, name, grown(getattr(self, name), (rows,), fill))
        self.returns = grown(self.returns, (rows, RETURNS), np.nan)
        for name in MEASURES:
            self.values[name] = grown(self.values[name], (rows,), np.nan)
            self.times[name] = grown(self.times[name], (rows,), 0)
        self._resize_grid((rows, self.stage.shape[1]))

    def _resize_grid(self, shape: tuple[int, int]) -> None:
        self.stage = grown(self.stage, shape, -1)
        self.blueprint = grown(self.blueprint, shape, -1)
        self.alpha = grown(self.alpha, shape, np.nan)
        self.age = grown(self.age, shape, -1)
