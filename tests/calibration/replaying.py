"""A recording judged as it would have been live: tick by tick, and every finding that ever opened.

Owns how a recording becomes a run's events again and what counts as one finding: an opening, whatever it
states later, at the worst severity it ever had.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from overwatch.catalog import BY_NAME, Scope, find
from overwatch.diagnose import Assessment, assess
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
from overwatch.state.policy import Status
from tests.calibration.recorded import Recording, Reported
from tests.fakes import ORIGIN, START_NS

SEVERITIES = ("info", "warning", "critical")


@dataclass
class Seen:
    """One finding from its opening to its end; one that a larger one takes over goes on as that one."""

    code: str
    severity: str
    update: int
    message: str


@dataclass(frozen=True)
class Replayed:
    """What a run's replay brought."""

    updates: int
    found: tuple[Seen, ...]
    breaches: dict[str, Counter[Status]]
    """By short name: updates by their status."""

    def of(self, severity: str) -> list[Seen]:
        """Findings that were as bad as this at their worst."""
        return [seen for seen in self.found if seen.severity == severity]


def events(recording: Recording) -> Iterator[Event]:
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


def replay(recording: Recording) -> Replayed:
    """Fold and judge the whole recording at its own pace, ten times a second."""
    state: RunState | None = None
    assessment, open_now = Assessment(), dict[str, Seen]()
    found: list[Seen] = []
    breaches: dict[str, Counter[Status]] = {}
    tick = START_NS
    for seq, event in enumerate(events(recording), start=1):
        record = Record(origin=ORIGIN, event=event, seq=seq)
        due = next_tick(event.at)
        while state is not None and tick < due:
            assessment = assess(state, assessment, tick).assessment
            _note(assessment, state, open_now, found)
            tick += FAST_NS
        state = state or new_run(record)
        apply(state, record, event.at)
        if isinstance(event, Measured):
            _count(state, breaches)
    assert state is not None
    assessment = assess(state, assessment, tick).assessment
    _note(assessment, state, open_now, found)
    return Replayed(state.updates, tuple(found), breaches)


def _note(assessment: Assessment, state: RunState, open_now: dict[str, Seen], found: list[Seen]) -> None:
    standing = {key: item for key, item in assessment.findings.items() if item.cleared_at is None}
    gone = [key for key in open_now if key not in standing]
    for key, item in standing.items():
        problem = item.problem
        if key not in open_now:
            grown = next((open_now[known] for known in gone if known.split(":")[0] in problem.absorbs), None)
            open_now[key] = grown or Seen(problem.code, problem.severity, state.updates, problem.message)
            found += [] if grown else [open_now[key]]
        seen = open_now[key]
        seen.code, seen.message = problem.code, problem.message
        seen.severity = max(seen.severity, problem.severity, key=SEVERITIES.index)
    for key in gone:
        del open_now[key]


def _count(state: RunState, breaches: dict[str, Counter[Status]]) -> None:
    for name, series in state.policy.items():
        if name in BY_NAME and series.judgement is not None:
            breaches.setdefault(BY_NAME[name].short, Counter())[series.judgement.status] += 1
