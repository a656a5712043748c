"""What a program logs by name and step, as updates of a run.

Rules: scalars of one step are one update, with a number of its own; what comes later of that step joins it
under that number. A step that falls, and a name by the clock, is another axis of the open update. What a
known library logs between its updates is none: means of episodes go with the next update. Must not know who
logs, nor when a run begins and ends.
"""

import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from overwatch.adapters.logged_episodes import EPISODES, MEANS, LoggedEpisodes
from overwatch.adapters.numbers import numbers
from overwatch.catalog import CUSTOM_PREFIX, Library
from overwatch.catalog.libraries.guess import library_of
from overwatch.events import PhaseEnded
from overwatch.sdk import Run

PHASES: Final[Mapping[Library, Mapping[str, str]]] = MappingProxyType(
    {
        Library.RL_GAMES: {
            "performance/step_inference_time": "collect",
            "performance/rl_update_time": "learn",
        },
        Library.RSL_RL: {"Perf/collection_time": "collect", "Perf/learning_time": "learn"},
    }
)
"""Names of the seconds that an update spent in a phase of the loop."""
BY_CLOCK: Final = {Library.RL_GAMES: "/time", Library.RSL_RL: "/time"}
"""The end of names whose step is seconds."""


def begins_update(
    name: str, step: float | None, names: Collection[str], at: float | None, library: Library | None
) -> bool:
    """Whether a scalar belongs to another update than the open one, which has these names at a step."""
    if name in names:
        return step is None or step != at
    clock = BY_CLOCK.get(library) if library is not None else None
    if step is None or at is None or (clock is not None and name.endswith(clock)):
        return False
    return step > at


class LoggedUpdates:
    """The update that is being logged, and what waits for it; without a given library, names decide which."""

    def __init__(self, library: Library | None) -> None:
        self._is_given, self._library = library is not None, library
        self._seen: set[str] = set()
        self._step: float | None = None
        self._names: set[str] = set()
        """Of the open update, all."""
        self._waiting: dict[str, float] = {}
        """Of the open update, what is not yet sent."""
        self._is_update = False
        """Whether the open update has a number: something of it was sent."""
        self._expected: frozenset[str] = frozenset()
        """Names of the newest whole update: one that has them all need not wait for the next step."""
        self._number = 0
        self._means: dict[str, float] = {}
        self._episodes = LoggedEpisodes()

    def add(self, run: Run, name: str, number: float, step: float | None) -> None:
        """One scalar."""
        if name not in self._seen and not self._is_given:
            self._seen.add(name)
            self._library = library_of(self._seen)
        if self._names and begins_update(name, step, self._names, self._step, self._library):
            self._end_update(run)
        if self._library is Library.CLEANRL and name in EPISODES:
            self._episodes.add(run, EPISODES[name], number)
            return
        self._episodes.end(run)
        if not self._names:
            self._step = step
        self._names.add(name)
        self._waiting[name] = number
        if self._expected and self._names >= self._expected:
            self._send(run)

    def end(self, run: Run) -> None:
        """The open update is whole."""
        self._episodes.end(run)
        self._end_update(run)

    def finish(self, run: Run) -> None:
        """No update comes any more: means of episodes go with the last one."""
        self.end(run)
        if self._number and self._means:
            run.update(update=self._number, **self._means)
            self._means = {}

    def _end_update(self, run: Run) -> None:
        self._send(run)
        if self._is_update:
            self._expected = frozenset(self._names)
        self._names, self._is_update = set(), False

    def _send(self, run: Run) -> None:
        """Send what the open update has and was not yet sent."""
        logged, self._waiting = self._waiting, {}
        if not logged:
            return
        found = numbers(logged, self._library or Library.PLAIN)
        rows = {name for name in found if not name.startswith(CUSTOM_PREFIX)}
        if not self._is_update:
            if self._library is not None and rows <= MEANS:
                self._means |= {name: found.pop(name) for name in rows}
                run.gauge(**found)
                return
            self._is_update = True
            self._number += 1
            means, self._means = self._means, {}
            found = means | self._episodes.means() | found
        run.update(update=self._number, **found)
        for name, phase in PHASES.get(self._library, {}).items() if self._library is not None else ():
            if name in logged:
                took = logged[name]
                at, of = time.time_ns(), self._number
                run.fact(PhaseEnded(at=at, phase=phase, duration_s=took, update=of))
