"""The envs of one run as a struct of arrays, with their slots as a grid (env × slot).

Owns which env has which row. When envs are removed the last rows move into their places: a row's life number
shows whose it is from one tick to the next. A value counts as present when its time is above 0. Arrays fold
whole columns at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.catalog import Stage
from overwatch.events import Column
from overwatch.state.arrays import Floats, Ints, Table, arrays_of, floats, grown, ints, resize
from overwatch.state.env_tables import (
    MEASURES,
    RETURNS,
    SHOWN_RETURNS,
    Actions,
    EpisodeSums,
    Silences,
    Tally,
    Trends,
)
from overwatch.state.places import At, Cells, Codes, Places, Rows, first_seen, ids_in, looked_up

MAX_ENVS: Final = 1 << 17
"""Most envs of one run."""
LENGTHS: Final = 8
"""Episodes that the mean length is of, mostly."""
MAX_GONE: Final = 1 << 16
"""Removed envs remembered; beyond it the earliest removal is forgotten."""
_GRID: Final = {"stage": -1, "blueprint": -1, "alpha": np.nan, "age": -1, "grad": np.nan}
"""Arrays of shape (C, slots), with what an unused cell holds."""
_BARE: Final = np.zeros(max(stage.code for stage in Stage) + 2, dtype=np.bool_)
_BARE[[stage.code for stage in Stage if not stage.shows_blueprint] + [Stage.GERMINATED.code]] = True
"""Stages without a seed that has learned: what was measured of an earlier one is over."""


class Envs(msgspec.Struct, kw_only=True):
    """All envs that are there. Arrays have capacity C ≥ n rows; only the first n are in use."""

    FILLS: ClassVar[Mapping[str, float]] = {
        "ids": 0, "lives": 0, "seen_at": 0, "born_at": 0, "lane": -1, "episodes": 0, "outdated": 0,
        "episode_at": 0, "crashed_at": 0, "non_finite_at": 0, "returns": np.nan, "values": np.nan, "times": 0,
        "rollbacks": 0, "lengths": np.nan, "choices": np.nan, "grids": np.nan, **_GRID,
    }  # fmt: skip

    n: int = 0
    most: int = MAX_ENVS
    """How many there may be."""
    ids: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env id of each row."""
    by_id: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Rows in order of their env ids, shape (n,)."""
    lives: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Number of each row's life; an env that was removed and came back has another one."""
    lived: int = 0
    """Lives so far."""
    moved: int = 0
    """How often rows were given to envs, or taken from them."""
    gone: dict[int, int] = msgspec.field(default_factory=dict)
    """Producer's time at which each env was last removed, by env id; also of those that came back."""
    removed_at: int = 0
    """The newest of them; 0 while none was."""
    seen_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of the env's newest record."""
    born_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of the env's first record."""
    newborn: bool = True
    """Whether any may have none yet."""
    silences: Silences = msgspec.field(default_factory=Silences)
    """How long each env is usually quiet."""
    lane: Ints = msgspec.field(default_factory=lambda: ints(0, fill=-1))
    """Index into the run's lane names; -1 unknown."""
    values: dict[str, Floats] = msgspec.field(default_factory=lambda: {name: floats(0) for name in MEASURES})
    times: dict[str, Ints] = msgspec.field(default_factory=lambda: {name: ints(0) for name in MEASURES})
    """Producer's time of each value; 0 = never measured. Measures that few runs have begin with the first."""
    returns: Floats = msgspec.field(default_factory=lambda: floats(0, RETURNS))
    """Ring of finished episodes' returns, shape (C, RETURNS)."""
    episodes: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Finished episodes of each env."""
    lengths: Floats = msgspec.field(default_factory=lambda: floats(0))
    """Steps of each env's episodes, a mean of the newest foremost; NaN where none was sent."""
    outdated: Ints = msgspec.field(default_factory=lambda: ints(0))
    """How many of each env's first episodes were of an earlier task, and are no measure any more."""
    episode_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time at which each env's last episode ended; 0 = none did."""
    sums: EpisodeSums = msgspec.field(default_factory=EpisodeSums)
    """What finished episodes showed when `newest_sums` and `all_sums` were last read."""
    trends: Trends = msgspec.field(default_factory=Trends)
    actions: Actions = msgspec.field(default_factory=Actions)
    culls: Tally = msgspec.field(default_factory=Tally)
    gate_fails: Tally = msgspec.field(default_factory=Tally)
    crash_tally: Tally = msgspec.field(default_factory=Tally)
    failing: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    """Seed and gate of the last failure in each slot of an env: a seed that asks again counts once."""
    failed_gate: dict[int, str] = msgspec.field(default_factory=dict)
    """Name of the gate that each env failed last, by env id."""
    failed_check: dict[int, str] = msgspec.field(default_factory=dict)
    """First check that failed there; empty where none was named."""
    failed_why: dict[int, str] = msgspec.field(default_factory=dict)
    """What was measured there, e.g. `gradient ratio 0.04 < 0.10`; empty where nothing was reported."""
    crashed_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Producer's time of the crash; 0 while the env lives."""
    non_finite_at: Ints = msgspec.field(default_factory=lambda: ints(0))
    rollbacks: Ints = msgspec.field(default_factory=lambda: ints(0))
    """How often each env's network was set back."""
    choices: dict[str, Floats] = msgspec.field(default_factory=dict)
    """Of each env's newest operation: how sure the policy was, and what else it might have done, as codes and
    shares by the name of the event's field."""
    crashes: dict[int, str] = msgspec.field(default_factory=dict)
    """Last crash message by env id."""
    non_finite: dict[int, str] = msgspec.field(default_factory=dict)
    """Last non-finite field by env id."""
    stage: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    """Stage code of each (env, slot); -1 = no such slot in this env."""
    blueprint: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    alpha: Floats = msgspec.field(default_factory=lambda: floats(0, 0))
    age: Ints = msgspec.field(default_factory=lambda: ints(0, 0, fill=-1))
    grad: Floats = msgspec.field(default_factory=lambda: floats(0, 0))
    """Gradient health of each slot's seed; NaN where none was measured."""
    graded: bool = False
    """Whether any was."""
    grids: dict[str, Floats] = msgspec.field(default_factory=dict)
    """Further numbers of slots by short name, shape (C, slots); NaN where none was measured."""
    gated_at: int = 0
    """Producer's time of the first gate that was evaluated; 0 before it."""
    gates: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    """Last gate of a seed's slot, by env id, then by slot, as shown: `G2 0.71`, `G2 fail: health`."""
    places: Places = msgspec.field(default_factory=Places)

    def at(self, column: Column) -> At:
        """The rows of a column of env ids; unseen ids get new rows. Raises `ValueError` as `ids_in`."""
        return self.places.envs(column, lambda: self.rows(ids_in(column)), self.n)

    def knows(self, column: Column) -> bool:
        """Whether these ids came before, and every one of them is still there."""
        return self.places.holds(column)

    def cells(self, column: Column, slots: Column, codes: Codes) -> Cells:
        """The cells of a column of env ids and one of slots, whose labels have these codes."""
        return self.places.slots(column, slots, codes, lambda: self.rows(ids_in(column)), self.n)

    def lanes_by(self, order: Ints) -> tuple[int, ...]:
        """Lanes in the order in which their first env comes in this order of all rows."""
        return tuple(first_seen(self.lane[order]))

    def by_lane(self) -> dict[int, Rows]:
        """Rows of each lane's envs, in table order; -1 is the lane that was not named."""
        return self.places.lanes(self.lane[: self.n])

    def rows(self, env_ids: Ints) -> Ints:
        """Row of each env id, shape (k,); unseen ids get new rows."""
        within = env_ids.size and int(env_ids.min()) >= 0 and int(env_ids.max()) < self.n
        if within and (self.ids[env_ids] == env_ids).all():
            return env_ids
        places, seen = self._places(env_ids)
        if not seen.all():
            self._add(np.unique(env_ids[~seen]))
            places = np.searchsorted(self.ids[self.by_id], env_ids)
        return self.by_id[places]

    def row(self, env_id: int) -> int:
        """Row of one env id; an unseen id gets a new row."""
        if 0 <= env_id < self.n and int(self.ids[env_id]) == env_id:
            return env_id
        return int(self.rows(np.array([env_id], dtype=np.int64))[0])

    def find(self, env_id: int) -> int | None:
        """Row of an env id that was seen, else `None`."""
        place = int(np.searchsorted(self.ids[: self.n], env_id, sorter=self.by_id))
        if place >= self.n or int(self.ids[self.by_id[place]]) != env_id:
            return None
        return int(self.by_id[place])

    def report_lanes(self, given: At, column: Column, codes: Codes) -> None:
        """These envs are on the lanes in a column of words, whose labels have these codes."""
        lanes = looked_up(column, codes)
        if not np.array_equal(self.lane[given.span], lanes):
            self.lane[given.span] = lanes
            self.places.lanes_changed()

    def touch(self, rows: Rows, at: int) -> None:
        """These envs were reported at `at`."""
        if self.newborn:
            born = self.born_at[rows]
            new = born == 0
            self.born_at[rows] = np.where(new, at, born)
            self.newborn = not self.born_at[: self.n].all()
            self.silences.begin(rows, new, at)
        self.seen_at[rows] = np.maximum(self.seen_at[rows], at)
        self.silences.reported(rows, at, self.crashed_at[rows] > 0 if self.crashes else None)

    def touch_one(self, row: int, at: int) -> None:
        """As `touch`, of one env: arrays of one row cost a fact more than all the rest of it."""
        if self.newborn:
            self.touch(slice(row, row + 1), at)
        self.seen_at[row] = max(self.seen_at.item(row), at)
        self.silences.reported_one(row, at)

    def report(self, rows: Rows, at: int) -> None:
        """These envs gave numbers at `at`; a crashed env that does lives again."""
        self.touch(rows, at)
        if not self.crashes:
            return
        crashed = self.crashed_at[rows]
        if crashed.any():
            self.crashed_at[rows] = np.where(crashed < at, 0, crashed)

    def measure(self, name: str, rows: Rows, values: Floats, at: int) -> None:
        """Fold one column of one measure."""
        if name not in self.values:
            self.values[name], self.times[name] = floats(self.ids.size), ints(self.ids.size)
        self.values[name][rows] = values
        self.times[name][rows] = at

    def measure_slots(self, name: str, cells: Cells, values: Floats) -> None:
        """Fold one column of a further number of slots."""
        if name not in self.grids:
            self.grids[name] = floats(*self.stage.shape)
        cells.put(self.grids[name], values)

    def choose(self, rows: Ints, choice: Mapping[str, np.ndarray]) -> None:
        """Keep how the newest operations of these rows were chosen."""
        for name, values in choice.items():
            if name not in self.choices:
                self.choices[name] = floats(self.ids.size)
            self.choices[name][rows] = values

    def note_non_finite(self, rows: Ints, values: np.ndarray, name: str, at: int) -> None:
        """Note the rows of a column whose values are not finite, where they have to be."""
        bad = ~np.isfinite(values)
        if not bad.any():
            return
        self.non_finite_at[rows[bad]] = at
        for env_id, value in zip(self.ids[rows[bad]].tolist(), values[bad].tolist(), strict=True):
            self.non_finite[env_id] = f"{'nan' if value != value else 'inf'} in {name}"  # noqa: PLR0124 NaN

    def finish_episodes(self, rows: Ints, returns: Floats, at: int, *, is_new: bool = True) -> None:
        """Remember the returns of episodes that ended at `at`, at most one a row a call.

        One that is not new was counted: its return takes the place of the newest, since it is of now.
        """
        self.episodes[rows] = self.episodes[rows] + 1 if is_new else np.maximum(self.episodes[rows], 1)
        self.returns[rows, (self.episodes[rows] - 1) % RETURNS] = returns
        self.episode_at[rows] = at
        self._fitted_sums().note(rows)

    def note_lengths(self, rows: Ints, steps: Floats) -> None:
        """Fold how many steps episodes of these rows took."""
        known = self.lengths[rows]
        self.lengths[rows] = np.where(np.isfinite(known), known + (steps - known) / LENGTHS, steps)

    def begin_task(self, rows: Ints) -> None:
        """These envs have another task from now on; the episode under way is of both, and of neither."""
        self.outdated[rows] = self.episodes[rows] + 1
        self._fitted_sums().note(rows)

    def report_returns(self, given: At, returns: Floats, at: int) -> None:
        """Fold a gauge of returns: it is shown as it is, and a new value of it is a finished episode."""
        new = np.isfinite(returns) & (returns != self.values["return"][given.span])
        self.finish_episodes(given.rows[new], returns[new], at)
        self.measure("return", given.span, returns, at)

    def newest_sums(self) -> EpisodeSums:
        """What the newest episodes of each env show."""
        sums = self._fitted_sums()
        rows = sums.take_due(self.n, newest=True)
        if rows.size:
            done = self.episodes[rows]
            sums.sum_newest(rows, self._newest(rows, done, SHOWN_RETURNS), done, done - self.outdated[rows])
        return sums

    def all_sums(self) -> EpisodeSums:
        """What all episodes of each env show, beside the newest."""
        sums = self._fitted_sums()
        rows = sums.take_due(self.n, newest=False)
        if rows.size:
            done = self.episodes[rows]
            sums.sum_all(rows, self._newest(rows, done, RETURNS), done - self.outdated[rows])
        return sums

    def mean_return(self, rows: Rows | None = None) -> Floats:
        """Mean of each env's newest returns, or its gauge; NaN before the first episode."""
        rows = slice(0, self.n) if rows is None else rows
        reported_at = self.times["return"][rows]
        given = reported_at >= np.maximum(self.episode_at[rows], 1)
        shown: Floats = np.where(given, self.values["return"][rows], self.newest_sums().mean[rows])
        return shown

    def move(self, cells: Cells, stages: Ints, at: int) -> None:
        """Set the stages of slots; a seed that is newly pruned counts as a cull."""
        pruned = stages == Stage.PRUNED.code
        if pruned.any():
            pruned &= cells.of(self.stage) != Stage.PRUNED.code
            self.culls.add(cells.rows[pruned], at)
        cells.put(self.stage, stages)
        if self.graded:
            cells.clear(self.grad, _BARE[stages])

    def arrays(self) -> Iterator[tuple[np.ndarray, float]]:
        """Everything that has a row an env, with what an unused row holds."""
        for table in (self, *self._tables()):
            yield from arrays_of(table)

    def remove(self, env_ids: Ints, at: int) -> None:
        """These envs, each named once, ended at `at`; those that reported after it live on as new ones."""
        for env_id in env_ids.tolist():
            self.gone[env_id] = max(at, self.gone.pop(env_id, 0))
        for env_id in list(self.gone)[: max(0, len(self.gone) - MAX_GONE)]:
            del self.gone[env_id]
        self.removed_at = max(self.removed_at, at)
        places, seen = self._places(env_ids)
        rows = self.by_id[places[seen]]
        again = rows[self.seen_at[rows] > at]
        ids, lanes, seen_at = self.ids[again], self.lane[again], self.seen_at[again]
        values = {name: (self.values[name][again], self.times[name][again]) for name in self.values}
        self._drop(rows)
        rows = self.rows(ids)
        self.lane[rows], self.seen_at[rows] = lanes, seen_at
        self.born_at[rows] = at
        self.silences.last_ns[rows] = self.silences.clock_ns
        for name, (given, times) in values.items():
            fresh = times > at
            self.measure(name, rows[fresh], given[fresh], 0)
            self.times[name][rows[fresh]] = times[fresh]

    def end(self, env_ids: Ints, names: Sequence[str], at: int) -> Ints:
        """Forget these measures, unless they were reported after `at`; the ids of those with none left."""
        places, seen = self._places(env_ids)
        rows = self.by_id[places[seen]]
        touched = np.zeros(rows.size, dtype=np.bool_)
        for name in (name for name in names if name in self.values):
            over = (self.times[name][rows] > 0) & (self.times[name][rows] <= at)
            self._end(name, rows[over])
            touched |= over
        left = np.zeros(rows.size, dtype=np.bool_)
        for name in self.values:
            left |= self.times[name][rows] > 0
        return self.ids[rows[touched & ~left]]

    def drop_late(self) -> bool:
        """Drop removed envs that have not reported since; whether there were any."""
        newest = self.ids[: self.n].tolist()
        late = [row for row, env_id in enumerate(newest) if self.seen_at[row] <= self.gone.get(env_id, -1)]
        self._drop(np.array(late, dtype=np.int64))
        return bool(late)

    def silent(self, before: int) -> Ints:
        """Rows of the envs whose newest record is older than `before`."""
        return np.flatnonzero(self.seen_at[: self.n] < before)

    def quietest(self, count: int) -> Ints:
        """So many rows, those whose newest records are the oldest."""
        return np.argsort(self.seen_at[: self.n], kind="stable")[: max(0, count)]

    def evict(self, rows: Ints) -> Ints:
        """Forget envs without a removal of theirs, and give their room back; their ids."""
        evicted = self.ids[rows]
        self._drop(rows)
        if self.n <= self.ids.size * 7 // 8:
            self._resize(self.n)
        return evicted

    def fit_slots(self, num_slots: int) -> None:
        """Make room for `num_slots` slots in the grid."""
        if num_slots <= self.stage.shape[1]:
            return
        self._resize_grid((self.stage.shape[0], max(num_slots, 2 * self.stage.shape[1])))

    def _end(self, name: str, rows: Ints) -> None:
        self.values[name][rows] = np.nan
        self.times[name][rows] = 0
        if name in self.trends.values:
            self.trends.values[name][rows] = np.nan
        if name == "return":
            self.returns[rows] = np.nan
            self.episodes[rows] = self.outdated[rows] = self.episode_at[rows] = 0
            self._fitted_sums().note(rows)

    def _newest(self, rows: Ints, done: Ints, count: int) -> Floats:
        """The `count` newest returns of these rows with `done` episodes; NaN where none is."""
        # Places below 0 count from the end of the ring; those that were never filled hold NaN.
        found: Floats = self.returns[rows[:, None], (done[:, None] - 1) % RETURNS - np.arange(count)]
        return found

    def _fitted_sums(self) -> EpisodeSums:
        """The sums, with a row for each env; fresh ones after a checkpoint."""
        if self.sums.stale.size != self.ids.size:
            resize(self.sums, self.ids.size)
        return self.sums

    def _tables(self) -> tuple[Table, ...]:
        tallies = (self.culls, self.gate_fails, self.crash_tally)
        return (self._fitted_sums(), self.trends, self.actions, self.silences, *tallies)

    def _places(self, env_ids: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Places of env ids in `by_id`, and which of them are there."""
        known = self.ids[self.by_id]
        places = np.searchsorted(known, env_ids)
        seen = np.zeros(env_ids.size, dtype=np.bool_)
        inside = places < known.size
        seen[inside] = known[places[inside]] == env_ids[inside]
        return places, seen

    def _drop(self, rows: Ints) -> None:
        """Forget these rows; the last ones move into their places."""
        if not rows.size:
            return
        fails = (self.failed_gate, self.failed_check, self.failed_why)
        for env_id in self.ids[rows].tolist():
            for stated in (*fails, self.crashes, self.non_finite, self.gates, self.failing):
                stated.pop(env_id, None)
        left = self.n - rows.size
        drop = np.zeros(self.n, dtype=np.bool_)
        drop[rows] = True
        holes, movers = np.flatnonzero(drop[:left]), left + np.flatnonzero(~drop[left:])
        for array, fill in self.arrays():
            array[holes] = array[movers]
            array[left : self.n] = fill
        self.n = left
        self.by_id = np.argsort(self.ids[:left], kind="stable")
        self.moved += 1
        self.places.forget()

    def _add(self, env_ids: Ints) -> None:
        need = self.n + env_ids.size
        if need > self.ids.size:
            self._resize(max(need, min(2 * self.ids.size, self.most), 16))
        self.ids[self.n : need] = env_ids
        self.lives[self.n : need] = np.arange(self.lived, self.lived + env_ids.size)
        self.lived += env_ids.size
        self.n = need
        self.newborn = True
        self.by_id = np.argsort(self.ids[:need], kind="stable")
        self.moved += 1
        self.places.forget()

    def _resize(self, rows: int) -> None:
        for table in (*self._tables(), self):
            resize(table, rows)

    def _resize_grid(self, shape: tuple[int, int]) -> None:
        for name, fill in _GRID.items():
            setattr(self, name, grown(getattr(self, name), shape, fill))
        self.grids = {name: grown(grid, shape, np.nan) for name, grid in self.grids.items()}
