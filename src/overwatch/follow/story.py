"""The events of one run out of its rows.

Rules: a row is one update where it has a number of the policy that is no episode's; which rows are one is the
adapters' rule: those of one step, and those by another axis that counts fewer. Times are those of the rows:
a column, else the seconds since the beginning counted back from the time of the file, else even. A sign
of life stands between rows that are far apart: the writer is watched, however seldom it writes. Must not know
files, formats, or where events go.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from overwatch.adapters.logged_updates import begins_update
from overwatch.adapters.numbers import numbers, scalar
from overwatch.adapters.starting import SETTINGS
from overwatch.catalog import BY_NAME, CUSTOM_PREFIX, Scope, meaning
from overwatch.catalog.policy import RETURN
from overwatch.catalog.run import SDK_DROPPED, STEPS
from overwatch.events import Conflated, Event, Measured, RunFinished, RunStarted, scalars
from overwatch.follow.base import Logged
from overwatch.follow.columns import ENV_STEPS, Chosen, Columns, calendar, placed, wide
from overwatch.sdk.identity import config_text
from overwatch.sdk.launch import with_max_entropy
from overwatch.sdk.names import DIALECT, Dialect, Names, custom_name
from overwatch.sdk.values import RefusedError
from overwatch.simulate import Moment

SECOND: Final = 1_000_000_000
ALIVE_NS: Final = 4 * SECOND
"""Between signs of life."""
AWAY_NS: Final = 3600 * SECOND
"""Where rows are so far apart that nothing is known of the time between: a program that was resumed days
later, or a file that was left long ago."""
_SPACE_NS: Final = SECOND
"""Between rows without a time."""
_OF_EPISODES: Final = frozenset(
    {
        RETURN.name,
        *(
            f"overwatch.policy.{name}"
            for name in ("episode_length", "success_rate", "timeout_rate", "epsilon")
        ),
    }
)
"""Rows that show nothing of an update: libraries log them at the end of an episode, too."""
_OF_MACHINES: Final = (
    "gpu/", "host/", "env/envs_not_ok", "env/task_metric", "run/steps_per_s",
    "hw.", "system.", "overwatch.gpu.", "overwatch.envs.", "overwatch.run.",
)  # fmt: skip
"""How names begin of numbers that `overwatch export` writes and that are of no update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the user states of a run."""

    chosen: Chosen = field(default_factory=Chosen)
    algo: str | None = None
    task: str | None = None
    preset: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)


class Story:
    """One run; rows go in, in their order."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self.columns = Columns(declared.chosen)
        self.refused: Counter[str] = Counter()
        """Names that were left out, by the reason."""
        self.texts: Counter[str] = Counter()
        """How often a name had a value that is no number."""
        self.is_spaced = False
        """Rows have no time of their own, so they stand a second apart."""
        self.rows = 0
        self.updates = 0
        self.started: RunStarted | None = None
        self.last_at = 0
        self.is_away = False
        """What was read so far was delivered before following began, and nothing since."""
        self._began_s: float | None = None
        """Unix seconds at which the elapsed ones begin."""
        self._ahead = 0
        """Rows that the files had when they were surveyed, and that did not yet come."""
        self._longest_s: float | None = None
        """Most seconds since the beginning, of those rows."""
        self._step: float | None = None
        self._names: set[str] = set()
        """Of the newest update."""
        self._learns = False
        """Some number is one of an update, whatever numbers its row."""
        self._index: int | None = None
        """Number of the newest update."""
        self._full = Names(DIALECT, lambda *_: None, self._refuse)

    def survey(self, row: Logged) -> None:
        """Learn from a row that will come what all rows together show."""
        self._ahead += 1
        row = placed(row)
        self.columns.see(row.values)
        since = self.columns.elapsed_of(row.values)
        if since is not None:
            self._longest_s = max(since, self._longest_s or 0.0)

    def begins(self, file_ns: int) -> None:
        """All rows that were there at `file_ns` were surveyed."""
        if self._longest_s is not None:
            self._began_s = file_ns / SECOND - self._longest_s

    def when(self, row: Logged) -> float | None:
        """Unix seconds at which a row was written, as far as it shows them."""
        row, seconds = placed(row), calendar(row.at)
        if seconds is None:
            seconds = self.columns.time_of(row.values)
        since = self.columns.elapsed_of(row.values)
        if seconds is None and since is not None and self._began_s is not None:
            seconds = self._began_s + since
        return seconds

    def moments(self, rows: Sequence[Logged], config: Mapping[str, str], file_ns: int) -> Iterator[Moment]:
        """Events of these rows, which were all there at `file_ns`, the newest time that they can have."""
        if not rows:
            return
        rows = wide([placed(row) for row in rows])
        self.columns.see(name for row in rows for name in row.values)
        self._full.see(self.columns.names)
        if not self._learns:
            known = (meaning(name, Scope.POLICY) for name in self.columns.names)
            self._learns = self.columns.library is not None or any(
                row is not None and row[0].name not in _OF_EPISODES for row in known
            )
        for row, at in zip(rows, self._times(rows, file_ns), strict=True):
            if self.started is None:
                yield self._start(at, config)
            elif self.is_away:
                yield from self.begin_again(at)
            yield from self.alive(at)
            self.last_at = at
            self.rows += 1
            if events := tuple(self._events(row, at)):
                yield Moment(at=at, events=events)

    def alive(self, now: int) -> Iterator[Moment]:
        """Signs of life from the newest event to `now`; none of a time in which there may have been none."""
        if self.started is None or self.is_away:
            return
        if now - self.last_at > AWAY_NS:
            self.last_at = now - ALIVE_NS
        while now - self.last_at > ALIVE_NS:
            self.last_at += ALIVE_NS
            mark = Measured(at=self.last_at, scope=Scope.TOWER, values=scalars({SDK_DROPPED.name: 0.0}))
            yield Moment(at=self.last_at, events=(mark,))

    def begin_again(self, at: int) -> Iterator[Moment]:
        """Another life of the run, at its newest event's time or later."""
        if self.started is not None:
            self.is_away, self.last_at = False, max(at, self.last_at)
            self.started = replace(self.started, at=self.last_at)
            yield Moment(at=self.last_at, events=(self.started,))

    def finish(self, at: int, outcome: str, reason: str | None) -> Iterator[Moment]:
        """The end of the run, if it began."""
        if self.started is not None and not self.is_away:
            at = max(at, self.last_at)
            yield Moment(at=at, events=(RunFinished(at=at, outcome=outcome, reason=reason),))

    def _start(self, at: int, config: Mapping[str, str]) -> Moment:
        settings = with_max_entropy(config_text({**config, **self._declared.config}))
        algo = self._declared.algo or _first(settings, SETTINGS["algo"])
        task = self._declared.task or _first(settings, SETTINGS["task"])
        self.started = RunStarted(at=at, algo=algo, task=task, preset=self._declared.preset, config=settings)
        self._full = Names(Dialect(self.started.chosen), lambda *_: None, self._refuse)
        self._full.see(self.columns.names)
        self.last_at = at
        return Moment(at=at, events=(self.started,))

    def _refuse(self, _: str, error: RefusedError) -> None:
        self.refused[str(error).partition(";")[0]] += 1

    def _times(self, rows: Sequence[Logged], file_ns: int) -> Iterator[int]:
        """When each row was written; times never go back."""
        elapsed = (self.columns.elapsed_of(row.values) for row in rows)
        if self._began_s is None and (known := [one for one in elapsed if one is not None]):
            self._began_s = file_ns / SECOND - max(known)
        before, left = self.last_at, max(self._ahead, len(rows))
        self._ahead = max(self._ahead - len(rows), 0)
        space = min(max(file_ns - before, 0) // left, _SPACE_NS)
        for place, row in enumerate(rows):
            seconds = self.when(row)
            if seconds is None:
                self.is_spaced = True
                at = file_ns - (left - 1 - place) * space
            else:
                at = int(seconds * SECOND)
            before = max(before, at)
            yield before

    def _events(self, row: Logged, at: int) -> Iterator[Event]:
        steps = next(
            (value for name in ENV_STEPS if (value := scalar(row.values.get(name))) is not None), None
        )
        if steps is not None and steps >= 0:
            yield Measured(at=at, scope=Scope.RUN, values=scalars({STEPS.name: steps}))
        named = self._named(self.columns.numbers_of(row.values))
        if not named:
            return
        number = self.columns.update_of(row.values)
        # Of a run that has episodes alone, the rows that are numbered are its updates.
        is_update = self._is_update(named) or (number is not None and not self._learns)
        if is_update:
            step = row.step if row.step is not None else self.columns.step_of(row.values)
            if self._is_next(row.values, step):
                self.updates += 1
                self._step, self._names = step, set()
            self._names |= row.values.keys()
            self._index = self.updates if number is None else number
        yield Measured(
            at=at,
            scope=Scope.POLICY,
            values=scalars(named) | self._full.take_ended(),
            index=self._index,
            conflated=None if is_update else Conflated(n=1, updates=0),
        )

    def _is_next(self, names: Iterable[str], step: float | None) -> bool:
        """Whether a row of an update is of another one than the row before; without a step each is."""
        if step is None or self._step is None:
            return True
        library = self.columns.library
        return any(begins_update(name, step, self._names, self._step, library) for name in names)

    def _named(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a row by full names; what has no number is counted."""
        self.texts.update(
            name for name, value in values.items() if value is not None and scalar(value) is None
        )
        library = self.columns.library
        if library is None:
            found = {name: one for name, value in values.items() if (one := scalar(value)) is not None}
        else:
            found = numbers(values, library)
        full = self._full.policies(found)
        return {_of_policy(full[name]): value for name, value in found.items() if name in full}

    def _is_update(self, named: Iterable[str]) -> bool:
        """Whether a row is of an update: by what it has of the policy, where its names are known."""
        known = [name for name in named if name in BY_NAME]
        if known:
            return any(name not in _OF_EPISODES for name in known)
        is_of_machines = all(name.removeprefix(CUSTOM_PREFIX).startswith(_OF_MACHINES) for name in named)
        return self.columns.library is None and not is_of_machines


def _of_policy(full: str) -> str:
    """The name of a number of the policy: rows of machines are shown as custom numbers."""
    row = BY_NAME.get(full)
    return full if row is None or row.scope is Scope.POLICY else custom_name(full)


def _first(settings: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((settings[name] for name in names if settings.get(name)), None)
