"""Which of a row's numbers is its step, its update, and its time; and which library wrote it.

Rules: a column is known by its name, in the order of the tables here, and by its values: a time is one that a
calendar has. A long table, a name and a value a row, is read as rows of a moment. Must not know formats.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from overwatch.adapters.numbers import scalar
from overwatch.catalog import Library, Scope, meaning
from overwatch.catalog.libraries.guess import library_of
from overwatch.follow.base import Logged

UPDATES: Final = (
    "time/iterations", "training_iteration", "training/global_step", "update", "updates", "iteration",
    "iterations", "iter",
)  # fmt: skip
"""Columns that count updates."""
ENV_STEPS: Final = (
    "time/total_timesteps", "num_env_steps_sampled_lifetime", "timesteps_total", "total_timesteps",
    "env_steps",
)  # fmt: skip
"""Columns that count steps of the environments."""
STEPS: Final = (*ENV_STEPS, "step", "global_step", "_step", "Step", "trainer/global_step", "epoch")
"""Columns that distinguish one log call from the next."""
TIMES: Final = ("_timestamp", "timestamp", "wall_time", "Wall time", "time", "datetime", "date", "ts")
ELAPSED: Final = (
    "time/time_elapsed", "time_total_s", "_runtime", "elapsed_seconds", "elapsed", "time_elapsed",
    "elapsed_s",
)  # fmt: skip
"""Columns with the seconds since the run began."""
_NAMED: Final = ("metric", "tag")
"""Columns of a long table that name the number in `value`: `overwatch export --to csv` has the first."""
_ABOUT: Final = frozenset({*_NAMED, "value", "run", "unit", "gpu", "at", "steps"})
"""Columns of a long table that are no part of its moment, or are named otherwise there."""
_EARLIEST_S: Final = 5e8
"""Unix seconds of 1985: smaller numbers are no time of a calendar."""
_LONGEST_S: Final = 1e9
"""Seconds since a run began, three decades of them."""
_LATEST_S: Final = 9e9
"""Larger ones are milliseconds, or nanoseconds; of later years than 2255 the nanoseconds are no 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the user states of the columns; what is `None` is found."""

    step: str | None = None
    time: str | None = None
    library: Library | None = None


class Columns:
    """Those of one run, as far as its rows were seen."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen if chosen.step is None else replace(chosen, step=_place(chosen.step))
        self.names: set[str] = set()
        """Those of all rows so far."""
        self.library = chosen.library
        """Who wrote the names; `None` while no library is known by them, and the catalogue's count."""
        self.hits = 0
        """How many of the names are known."""

    def see(self, names: Iterable[str]) -> bool:
        """Take names of rows; whether they change who wrote them."""
        new = set(names) - self.names
        if not new:
            return False
        self.names |= new
        before = self.library
        self.library = self._chosen.library or library_of(self.names)
        known = (meaning(name, Scope.POLICY, library=self.library) for name in self.names - _PLACES)
        self.hits = sum(row is not None for row in known)
        return self.library != before

    def update_of(self, values: Mapping[str, Any]) -> int | None:
        """The number of the update, where a column counts them or the user named one."""
        return _whole(_first(values, (self._chosen.step,) if self._chosen.step else UPDATES))

    def step_of(self, values: Mapping[str, Any]) -> float | None:
        """What distinguishes one log call from the next."""
        return _first(values, STEPS)

    def time_of(self, values: Mapping[str, Any]) -> float | None:
        """Unix seconds, where a column has a time of the calendar."""
        names = (self._chosen.time,) if self._chosen.time else TIMES
        return next((at for name in names if (at := calendar(values.get(name))) is not None), None)

    def elapsed_of(self, values: Mapping[str, Any]) -> float | None:
        """Seconds since the run began, where a column has as many as can be."""
        since = _first(values, (self._chosen.time,) if self._chosen.time else ELAPSED)
        return since if since is not None and 0 <= since <= _LONGEST_S else None

    def numbers_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The row without its times and steps, which are no charts."""
        return {
            name: value for name, value in values.items() if name not in _PLACES and name != self._chosen.time
        }


_PLACES: Final = frozenset((*UPDATES, *STEPS, *TIMES, *ELAPSED, "second"))


def _place(name: str) -> str:
    """The place that a column's name spells in other letters: `Update`, `Global Step`; else the name."""
    spelt = "_".join(name.lower().replace("-", " ").split())
    return name if name in _PLACES or spelt not in _PLACES else spelt


@lru_cache(1024)
def _renamed(names: tuple[str, ...]) -> dict[str, str]:
    places = ((name, _place(name)) for name in names)
    return {name: place for name, place in places if place not in names}


def placed(row: Logged) -> Logged:
    """The row with its places named as the tables here have them."""
    renamed = _renamed(tuple(row.values))
    if not renamed:
        return row
    values = {renamed.get(name, name): value for name, value in row.values.items()}
    return msgspec.structs.replace(row, values=values)


def wide(rows: Sequence[Logged]) -> Sequence[Logged]:
    """Rows of a long table, those of a moment as one and in order of time; all others as they are.

    >>> cells = {"metric": "kl", "value": 0.1, "time": 6e8}, {"metric": "loss", "value": 2.0, "time": 6e8}
    >>> [row.values for row in wide([Logged(values=one) for one in cells])]
    [{'time': 600000000.0, 'kl': 0.1, 'loss': 2.0}]
    """
    if not any(_name_of(row.values) for row in rows):
        return rows
    moments: dict[tuple[object, ...], Logged] = {}
    for place, row in enumerate(rows):
        name, values = _name_of(row.values), row.values
        if name is None:
            moments[place,] = row
            continue
        about = {key: value for key, value in values.items() if key not in _ABOUT}
        about |= {"env_steps": values["steps"]} if "steps" in values else {}
        of_moment = moments.setdefault(tuple(about.items()), msgspec.structs.replace(row, values=about))
        of_moment.values[name] = values["value"]
    return sorted(moments.values(), key=lambda row: calendar(row.values.get("time")) or 0.0)


def _name_of(values: Mapping[str, Any]) -> str | None:
    """Of a row of a long table the name of its number."""
    name = next((values[column] for column in _NAMED if isinstance(values.get(column), str)), None)
    if name is None or "value" not in values:
        return None
    return "/".join(part for part in (name, values.get("gpu")) if part)


def _first(values: Mapping[str, Any], names: Iterable[str]) -> float | None:
    for name in names:
        number = scalar(values.get(name))
        if number is not None and math.isfinite(number):
            return number
    return None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 1 << 53 else None


def calendar(value: object) -> float | None:
    """Unix seconds that a value is a time of; `None` where it is none, or of no year of this age."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            return None
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        return seconds if _EARLIEST_S < seconds <= _LATEST_S else None
    number = scalar(value)
    if number is None or not math.isfinite(number):
        return None
    seconds = number
    while seconds > _LATEST_S:
        seconds /= 1000
    return seconds if seconds > _EARLIEST_S else None
