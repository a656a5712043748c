"""Which of a row's numbers is its step, its update, and its time; and which library wrote it.

Rules: a column is known by its name, in the order of the tables here, and by its values: a time is one that a
calendar has. Must not know formats.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from overwatch.adapters.numbers import scalar
from overwatch.catalog import Library, recognise
from overwatch.catalog.libraries.guess import library_of

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
        self._chosen = chosen
        self._names: set[str] = set()
        self.library = chosen.library
        """Who wrote the names; `None` while no library is known by them."""
        self.hits = 0
        """How many of the names are known."""

    def see(self, names: Iterable[str]) -> bool:
        """Take names of rows; whether they change who wrote them."""
        new = set(names) - self._names
        if not new:
            return False
        self._names |= new
        before = self.library
        self.library = self._chosen.library or library_of(self._names)
        self.hits = 0 if self.library is None else self._hits(self.library)
        return self.library != before

    def _hits(self, library: Library) -> int:
        return sum(recognise(name, library) is not None for name in self._names)

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


_PLACES: Final = frozenset((*UPDATES, *STEPS, *TIMES, *ELAPSED))


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
