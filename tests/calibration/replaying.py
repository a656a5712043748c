"""A run judged as a collector judges it, tick by tick, and every finding that ever opened.

Owns the one way from what arrived to what was found: simulated cases, recordings and the library's series all
go through `ticks`. A finding is an opening, whatever it states later, at the worst severity it ever had.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from overwatch.catalog import Scope, find
from overwatch.diagnose import Assessment, Judged, assess
from overwatch.events import (
    Column,
    EarlyStopped,
    EpisodeEnded,
    Event,
    Measured,
    Record,
    RunFinished,
    RunStarted,
    scalars,
)
from overwatch.fold import FAST_NS, next_tick
from overwatch.state import RunState, apply, new_run
from tests.calibration.recorded import Recording, Reported
from tests.fakes import ORIGIN, SECOND, START_NS

SEVERITIES = ("info", "warning", "critical")
BEYOND_NS = 30 * SECOND
"""How long a silent run is watched for after its last word."""

Arrival = tuple[int, Iterable[Record]]
"""A receive stamp, and what came with it."""
Tick = tuple[RunState, Judged, int]


def ticks(arrivals: Iterable[Arrival], until_ns: int = 0) -> Iterator[Tick]:
    """The state and its judgement after every tick, until a run is over, or silent for long."""
    state, assessment, tick = None, Assessment(), 0
    for stamp, records in arrivals:
        tick = tick or next_tick(stamp)
        while state is not None and tick < stamp:
            judged = assess(state, assessment, tick)
            assessment = judged.assessment
            yield state, judged, tick
            tick += FAST_NS
        for record in records:
            state = state or new_run(record)
            apply(state, record, stamp)
    if state is None:
        return
    end = tick + BEYOND_NS if state.finished is None else max(until_ns, tick) + SECOND
    while tick <= end:
        judged = assess(state, assessment, tick)
        assessment = judged.assessment
        yield state, judged, tick
        tick += FAST_NS


@dataclass
class Seen:
    """One finding from its opening to its end; one that a larger one takes over goes on as that one."""

    code: str
    subject: str | None
    message: str
    worst: dict[str, tuple[int, int]]
    """By severity, when it was first so bad: the tick, and how many updates there were."""

    @property
    def severity(self) -> str:
        """The worst that it ever was."""
        return max(self.worst, key=SEVERITIES.index)

    @property
    def update(self) -> int:
        """Updates when it opened."""
        return min(update for _, update in self.worst.values())

    def at_least(self, severity: str) -> tuple[int, int] | None:
        """When it was first so bad or worse."""
        bad = [
            when for one, when in self.worst.items() if SEVERITIES.index(one) >= SEVERITIES.index(severity)
        ]
        return min(bad, default=None)


class Watched:
    """Every finding of a run, as its ticks come."""

    def __init__(self) -> None:
        self.found: list[Seen] = []
        self._open: dict[str, Seen] = {}
        self._seen: dict[tuple[str, int], Seen] = {}
        """By id and beginning: what comes again soon after it cleared goes on."""

    def note(self, state: RunState, judged: Judged, tick: int) -> None:
        """Take one tick."""
        findings = judged.assessment.findings
        standing = {key: item.problem for key, item in findings.items() if item.cleared_at is None}
        gone = [key for key in self._open if key not in standing]
        for key, problem in standing.items():
            if key not in self._open:
                grown = next((self._open[one] for one in gone if one.split(":")[0] in problem.absorbs), None)
                known = grown or self._seen.get((key, findings[key].since))
                seen = known or Seen(problem.code, problem.subject, problem.message, {})
                self._open[key] = self._seen[key, findings[key].since] = seen
                self.found += [] if known else [seen]
            seen = self._open[key]
            seen.code, seen.subject, seen.message = problem.code, problem.subject, problem.message
            seen.worst.setdefault(problem.severity, (tick, state.updates))
        for key in gone:
            del self._open[key]


@dataclass(frozen=True)
class Replayed:
    """What a run's replay brought."""

    updates: int
    found: tuple[Seen, ...]

    def of(self, severity: str) -> list[Seen]:
        """Findings that were as bad as this at their worst."""
        return [seen for seen in self.found if seen.severity == severity]


def watched(arrivals: Iterable[Arrival], until_ns: int = 0) -> Replayed:
    """Fold and judge what arrived, at its own pace, ten times a second."""
    found, updates = Watched(), 0
    for state, judged, tick in ticks(arrivals, until_ns):
        found.note(state, judged, tick)
        updates = state.updates
    return Replayed(updates, tuple(found.found))


def replay(recording: Recording) -> Replayed:
    """Judge a recording."""
    events = enumerate(_events(recording), start=1)
    return watched((event.at, [Record(origin=ORIGIN, event=event, seq=seq)]) for seq, event in events)


def _events(recording: Recording) -> Iterator[Event]:
    """The run as its trainer emitted it, with what the library does not log beside it."""
    yield RunStarted(
        at=START_NS, task=recording.task, algo=recording.algo or "ppo", n_envs=recording.n_envs,
        preset=recording.preset, config=recording.config,
    )  # fmt: skip
    at, number = START_NS, 0
    for reported in recording.reported:
        at = START_NS + reported.after_ns
        if reported.values:
            number += 1
            if reported.stop is not None:
                yield EarlyStopped(
                    at=at, update=number, epoch=reported.stop.epoch, kl_divergence=reported.stop.kl,
                    target=reported.stop.target, minibatches_skipped=0,
                )  # fmt: skip
            yield Measured(at=at, scope=Scope.POLICY, values=scalars(_named(reported)), index=number)
        else:
            columns = (Column.of(list(column)) for column in zip(*reported.episodes, strict=True))
            ids, returns, lengths = columns
            yield EpisodeEnded(at=at, env_id=ids, episode_return=returns, length=lengths)
    yield RunFinished(at=at, outcome="completed")


def _named(reported: Reported) -> dict[str, float]:
    beside = {
        row.name: value for short, value in reported.beside.items() if (row := find(short, Scope.POLICY))
    }
    return {**reported.values, **beside}
