"""Scalars that a program logs by name and step become updates and episodes of a run.

Rules: scalars of one step are one update, with a number of its own; what comes later of that step joins it
under that number. A step that falls, and a name by the clock, is another axis of the open update. What a
known library logs between its updates is none: means of episodes go with the next update. Single episodes are
sent when they come, under env 0: no logger says whose they are. Nothing raises into training and nothing
waits. Must not know who logs: `tensorboard` and `wandb` do.
"""

import atexit
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from weakref import WeakSet

from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.logged_episodes import EPISODES, MEANS, LoggedEpisodes
from overwatch.adapters.numbers import numbers, scalar
from overwatch.adapters.starting import given_library
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
UNCLOSED: Final = "the SummaryWriter was dropped without close()"
_OPEN: Final["WeakSet[Scalars]"] = WeakSet()
_LEFT: Final[list["Scalars"]] = []
"""Those that nobody has any more and nobody closed."""


class Scalars(Bordered):
    """One run, from what is logged; it starts with the first number."""

    def __init__(self, begin: Callable[[], Run], library: str | None = None) -> None:
        self._begin = begin
        self._run: Run | None = None
        self._given = given_library(library)
        self._library = self._given
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
        self._shown = id(None)
        """The newest exception that nothing caught when the newest number came."""
        _OPEN.add(self)

    @property
    def run(self) -> Run:
        """The run, which starts here at the latest."""
        if self._run is None:
            while _LEFT:
                _LEFT.pop().close("completed", UNCLOSED)
            self._run = self._begin()
        return self._run

    @kept_out
    def add(self, name: str, value: object, step: float | None = None) -> None:
        """One scalar."""
        number = scalar(value)
        if number is None:
            return
        _, self._shown = self.run, id(getattr(sys, "last_value", None))
        if name not in self._seen and self._given is None:
            self._seen.add(name)
            self._library = library_of(self._seen)
        if self._names and self._is_next(name, step):
            self._end_update()
        if self._library is Library.CLEANRL and name in EPISODES:
            self._episodes.add(EPISODES[name], number, self.run)
            return
        self._episodes.end(self.run)
        if not self._names:
            self._step = step
        self._names.add(name)
        self._waiting[name] = number
        if self._expected and self._names >= self._expected:
            self._send()

    @kept_out
    def end(self) -> None:
        """The open update is whole."""
        if self._run is not None:
            self._episodes.end(self._run)
            self._end_update()

    @kept_out
    def aside(self, values: Mapping[str, object]) -> None:
        """Numbers that are of no update."""
        found = {f"{CUSTOM_PREFIX}{name}": scalar(value) for name, value in values.items()}
        self.run.gauge(**{name: number for name, number in found.items() if number is not None})

    @kept_out
    def close(self, outcome: str | None = None, reason: str | None = None) -> None:
        """Send what is left and end the run, if it has started."""
        self.finish()
        _OPEN.discard(self)
        if self._run is not None:
            self._run.close(outcome=outcome, reason=reason)

    @kept_out
    def finish(self) -> None:
        """Send what is left."""
        self.end()
        if self._number and self._means:
            self.run.update(update=self._number, **self._means)
            self._means = {}

    @kept_out
    def leave(self) -> None:
        """Nobody can log any more, and nobody has closed it: what is left is sent.

        A notebook shows the exception that ended its cell; one that was caught leaves nothing behind. Without
        one the run ends when another begins, else with the program, as the program ends.
        """
        error = getattr(sys, "last_value", None)
        if self._run is not None and error is not None and id(error) != self._shown:
            self._run.note_error(error)
            self.close()
        else:
            self.finish()
            _LEFT.append(self)

    def _is_next(self, name: str, step: float | None) -> bool:
        """Whether a scalar belongs to another update than the open one."""
        if name in self._names:
            return step is None or step != self._step
        clock = BY_CLOCK.get(self._library) if self._library is not None else None
        if step is None or self._step is None or (clock is not None and name.endswith(clock)):
            return False
        return step > self._step

    def _end_update(self) -> None:
        self._send()
        if self._is_update:
            self._expected = frozenset(self._names)
        self._names, self._is_update = set(), False

    def _send(self) -> None:
        """Send what the open update has and was not yet sent."""
        logged, self._waiting = self._waiting, {}
        if not logged:
            return
        found = numbers(logged, self._library or Library.PLAIN)
        rows = {name for name in found if not name.startswith(CUSTOM_PREFIX)}
        if not self._is_update:
            if self._library is not None and rows <= MEANS:
                self._means |= {name: found.pop(name) for name in rows}
                self.run.gauge(**found)
                return
            self._is_update = True
            self._number += 1
            means, self._means = self._means, {}
            found = means | self._episodes.means() | found
        self.run.update(update=self._number, **found)
        for name, phase in PHASES.get(self._library, {}).items() if self._library is not None else ():
            if name in logged:
                took = logged[name]
                self.run.fact(
                    PhaseEnded(at=time.time_ns(), phase=phase, duration_s=took, update=self._number)
                )


@atexit.register
def _finish_all() -> None:
    """Before the SDK closes the runs of this process: it registered first, and comes last."""
    for one in list(_OPEN):
        one.finish()
