"""Scalars that a program logs by name and step become updates and episodes of a run.

Rules: scalars of one step are one update, with a number of its own; what comes later of that step joins it
under that number. A step that falls, and a name by the clock, is another axis of the open update. What a
known library logs between its updates is none: means of episodes go with the next update. Single episodes are
sent when they come, under env 0: no logger says whose they are. Nothing raises into training and nothing
waits. Must not know who logs: `tensorboard` and `wandb` do.
"""

import atexit
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from weakref import WeakSet

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.numbers import numbers, scalar
from overwatch.catalog import CUSTOM_PREFIX, Library, parse_library
from overwatch.catalog.libraries.guess import library_of
from overwatch.events import PhaseEnded
from overwatch.sdk import Run

log: Final = logging.getLogger("overwatch.adapters")

LIBRARY_ENV: Final = "OVERWATCH_LIBRARY"
MEANS: Final = frozenset({"return", "episode_length"})
"""Rows that a library may log apart from its updates."""
EPISODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "charts/episodic_return": "return",
        "charts/episodic_length": "episode_length",
        "charts/episode_reward": "return",
        "charts/episode_length": "episode_length",
    }
)
"""CleanRL's names of single episodes: the row that is their mean."""
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
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "task": ("env_id", "env_name", "gym_id", "env", "task"),
        "algo": ("algo", "algorithm", "exp_name"),
        "n_envs": ("num_envs", "n_envs", "num_actors"),
        "updates": ("num_iterations", "num_updates", "max_iterations", "max_epochs"),
    }
)
"""What of a configuration names its run and counts it, by the names that programs use, the surest first."""
_COUNT: Final = itertools.count(1)
_OPEN: Final["WeakSet[Scalars]"] = WeakSet()


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
        self._episode: dict[str, float] = {}
        self._ended: dict[str, list[float]] = {}
        _OPEN.add(self)

    @property
    def run(self) -> Run:
        """The run, which starts here at the latest."""
        if self._run is None:
            self._run = self._begin()
        return self._run

    @kept_out
    def add(self, name: str, value: object, step: float | None = None) -> None:
        """One scalar."""
        number = scalar(value)
        if number is None:
            return
        _ = self.run
        if name not in self._seen and self._given is None:
            self._seen.add(name)
            self._library = library_of(self._seen)
        if self._names and self._is_next(name, step):
            self._end_update()
        if self._library is Library.CLEANRL and name in EPISODES:
            self._add_episode(EPISODES[name], number)
            return
        self._end_episode()
        if not self._names:
            self._step = step
        self._names.add(name)
        self._waiting[name] = number
        if self._expected and self._names >= self._expected:
            self._send()

    @kept_out
    def end(self) -> None:
        """The open update is whole."""
        self._end_episode()
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
            means, self._means, ended, self._ended = self._means, {}, self._ended, {}
            found = means | {name: sum(all_) / len(all_) for name, all_ in ended.items()} | found
        self.run.update(update=self._number, **found)
        for name, phase in PHASES.get(self._library, {}).items() if self._library is not None else ():
            if name in logged:
                took = logged[name]
                self.run.fact(
                    PhaseEnded(at=time.time_ns(), phase=phase, duration_s=took, update=self._number)
                )

    def _add_episode(self, mean: str, number: float) -> None:
        """A return or a length; those of one episode come one after the other."""
        if mean in self._episode:
            self._end_episode()
        self._episode[mean] = number
        if len(self._episode) == len(MEANS):
            self._end_episode()

    def _end_episode(self) -> None:
        ended, self._episode = self._episode, {}
        for mean, number in ended.items():
            self._ended.setdefault(mean, []).append(number)
        if "return" in ended:
            length = ended.get("episode_length")
            lengths = None if length is None else [length]
            self.run.episodes(env_id=[0], episode_return=[ended["return"]], length=lengths)


def started(name: str, config: Mapping[str, object]) -> Run:
    """A run of its own, named after what its configuration has by the names that programs use.

    The id of the environment is the first such run's alone: several in one process are several runs.
    """
    first = {row: next((str(config[key]) for key in keys if config.get(key) is not None), None)
             for row, keys in SETTINGS.items()}  # fmt: skip
    return sdk.start(
        run_id=_own_id(),
        task=first["task"] or name,
        algo=first["algo"],
        n_envs=_whole(first["n_envs"]),
        updates=_whole(first["updates"]),
        config=dict(config),
    )


def _whole(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdecimal() else None


def _own_id() -> str | None:
    """`None` for the first run of this process; a number behind the environment's id for each later one."""
    given = os.environ.get("OVERWATCH_RUN_ID", "").strip()
    nth = next(_COUNT)
    return f"{given}-{nth}" if given and nth > 1 else None


def given_library(name: str | None) -> Library | None:
    """The library of an argument, else of the environment; what is no library is logged."""
    wanted = name or os.environ.get(LIBRARY_ENV, "").strip()
    try:
        return parse_library(wanted) if wanted else None
    except ValueError as error:
        log.warning("%s; it is recognised by the names it logs", error)
        return None


@atexit.register
def _finish_all() -> None:
    """Before the SDK closes the runs of this process: it registered first, and comes last."""
    for one in list(_OPEN):
        one.finish()
