"""The story of one run: its curves, findings, bounds, envs, verdicts, and what it reported of itself.

Owns what is remembered of a whole recording, read once, whatever kind of recording it is. Times are seconds
since the run began, unless they are called Unix. What cannot be read is passed over and counted by its
reader. Must not know what is made of a story.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from overwatch.analyse.curves import Curves, fresh_values
from overwatch.analyse.findings import Findings, Found, Reported
from overwatch.catalog import Stage
from overwatch.events import Event, GateEvaluated, Record, RunStarted, SeedStageChanged
from overwatch.feeds.inputs import Input, open_input
from overwatch.feeds.recording import Recording, RecordingError, unshown
from overwatch.projection.history import of_snapshot
from overwatch.projection.run import feed_line
from overwatch.projection.text import safe, safe_or_none
from overwatch.runs import Tracked
from overwatch.snapshot import Bound, Env, FeedLine, Run, Snapshot
from overwatch.snapshot.history import MOST_COLUMNS, MOST_CURVES, HistoryQuery
from overwatch.snapshot.history import Curve as Drawn
from overwatch.state.feed import entry_of
from overwatch.state.past import Past
from overwatch.state.sources import Joins

GAP_S: Final = 2.5
"""A word that did not come for longer than this ended when it came last."""
TICK_S: Final = 1.0
"""What one snapshot stands for."""
MOST_LINES: Final = 1_000_000
MOST_MOVES: Final = 200_000


class AnalyseError(ValueError):
    """A request cannot be answered from what was given; the message names what to give instead."""


def open_recorded(path: Path) -> Input:
    """What lies at a path; raises `AnalyseError` where nothing can be replayed."""
    try:
        return open_input(path)
    except RecordingError as error:
        raise AnalyseError(str(error)) from error
    except OSError as error:
        raise AnalyseError(f"{path} cannot be read: {error.strerror or error}") from error


@dataclass(slots=True, kw_only=True)
class Spell:
    """One word over a stretch, in seconds since the run began."""

    word: str
    start: float
    end: float
    """When the next word came, or a tick after this one came last."""
    why: str | None = None
    hint: str | None = None
    confidence: float | None = None
    score: float = 0.0
    """The worst, of an env."""
    reasons: tuple[str, ...] = ()
    """Those of the worst score."""

    @property
    def length(self) -> float:
        """Seconds."""
        return self.end - self.start


def extend(intervals: list[Spell], word: str, now: float, bound: Bound | None = None) -> None:
    """Go on with what holds now."""
    going_on = bool(intervals) and now - intervals[-1].end <= GAP_S
    if going_on:
        intervals[-1].end = now
    if not going_on or intervals[-1].word != word:
        intervals.append(Spell(word=word, start=now, end=now + TICK_S))
    spell = intervals[-1]
    spell.end = now + TICK_S
    if bound is not None and (spell.confidence or 0.0) <= (bound.confidence or 0.0):
        spell.why, spell.hint, spell.confidence = bound.why, bound.hint, bound.confidence


def seconds_of(intervals: Iterable[Spell]) -> dict[str, float]:
    """How long each word held, longest first."""
    sums: dict[str, float] = {}
    for spell in intervals:
        sums[spell.word] = sums.get(spell.word, 0.0) + spell.length
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


@dataclass(slots=True, kw_only=True)
class EnvHistory:
    """One env over the run; what is not among the rows of a snapshot is not seen at that second."""

    env_id: int
    last: Env | None = None
    statuses: list[Spell] = field(default_factory=list)
    """What it was, in order."""
    worst: Env | None = None
    """At its highest score."""
    worst_at: float = 0.0

    def take(self, env: Env, now: float) -> None:
        """Its row of one snapshot."""
        self.last = env
        extend(self.statuses, env.status, now)
        spell = self.statuses[-1]
        if env.anomaly.score >= spell.score:
            spell.score, spell.reasons = env.anomaly.score, env.anomaly.reasons
        if self.worst is None or env.anomaly.score > self.worst.anomaly.score:
            self.worst, self.worst_at = env, now

    @property
    def bad_s(self) -> float:
        """Seconds in which it was not OK."""
        return sum(
            length for word, length in seconds_of(self.statuses).items() if word not in ("ok", "unknown")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A seed entered a stage."""

    time: float
    """Seconds since the run began."""
    stage: Stage
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class Seed:
    """The life of one seed."""

    env_id: int
    slot: str
    seed_id: str
    blueprint: str | None = None
    moves: list[Move] = field(default_factory=list)
    gates: int = 0
    failed: int = 0
    """Gates that it did not pass."""


@dataclass(slots=True)
class Facts:
    """What one run reported, in order."""

    config: dict[str, str] = field(default_factory=dict)
    lines: list[FeedLine] = field(default_factory=list)
    seeds: dict[str, Seed] = field(default_factory=dict)
    """By id, in the order of their first facts."""
    beyond: int = 0
    """Lines and moves beyond what is kept."""
    _feed: tuple[FeedLine, ...] = ()
    _codes: dict[str, str] = field(default_factory=dict)
    """Two letters of each blueprint."""
    """The last one taken."""

    def take(self, event: Event, began: float) -> None:
        """Go on with one event of the run, which began at this Unix second."""
        match event:
            case RunStarted():
                self.config |= {safe(name): safe(value) for name, value in event.config.items()}
                self._codes |= event.blueprints
            case SeedStageChanged():
                self._move(event, began)
            case GateEvaluated():
                seed = self.seeds.get(event.seed_id)
                if seed is not None:
                    seed.gates += 1
                    seed.failed += not event.passed
            case _:
                pass
        entry = entry_of(event)
        if entry is not None and len(self.lines) < MOST_LINES:
            self.lines.append(feed_line(entry, self._codes))
        elif entry is not None:
            self.beyond += 1

    def take_feed(self, feed: tuple[FeedLine, ...]) -> None:
        """Go on with the feed of a snapshot, where nothing else is left; it holds the newest lines only."""
        if feed != self._feed:
            self.lines += feed[len(feed) - fresh_values(self._feed, feed, 1) :]
        self._feed = feed

    def _move(self, event: SeedStageChanged, began: float) -> None:
        seed = self.seeds.get(event.seed_id)
        if seed is None:
            if len(self.seeds) >= MOST_MOVES:
                self.beyond += 1
                return
            seed = self.seeds[event.seed_id] = Seed(
                env_id=event.env_id, slot=safe(event.slot), seed_id=safe(event.seed_id)
            )
        seed.blueprint = safe_or_none(event.blueprint) or seed.blueprint
        seed.moves.append(
            Move(time=event.at / 1e9 - began, stage=event.after, reason=safe_or_none(event.reason))
        )


@dataclass(slots=True, kw_only=True)
class RunHistory:
    """One run, as it was recorded."""

    path: Path
    began: float
    """Unix seconds."""
    first: Snapshot
    last: Snapshot
    curves: Curves = field(default_factory=Curves)
    found: Findings = field(default_factory=Findings)
    """Every finding over its life."""
    bounds: dict[str, list[Spell]] = field(default_factory=dict)
    """By lane: what held it back. The run as a whole is the empty name."""
    envs: dict[int, EnvHistory] = field(default_factory=dict)
    """Those that were ever among the rows of a snapshot."""
    verdicts: list[Reported] = field(default_factory=list)
    """One each time that its verdict became another, in order."""
    facts: Facts = field(default_factory=Facts)
    """What it reported; empty where only snapshots were kept."""
    tracked: Tracked | None = None
    """What its records were folded to; absent where only snapshots were kept."""

    @property
    def run(self) -> Run:
        """Identity and progress, as last reported."""
        return self.last.run

    @property
    def length(self) -> float:
        """Seconds from its beginning to the last snapshot."""
        return self.last.time - self.began

    @property
    def findings(self) -> list[Found]:
        """In the order in which they were true first."""
        return self.found.in_order

    @property
    def config(self) -> dict[str, str]:
        """What it was started with, by name: its own settings, and what Overwatch knows of every run."""
        run, reported = self.run, {}
        for name in ("task", "algo", "reward_mode", "preset", "n_envs", "ranks", "git_sha", "dirty", "node",
                     "updates", "batches", "embargo", "group"):  # fmt: skip
            value = getattr(run, name)
            if value is not None:
                reported[name] = str(value)
        if run.devices:
            reported["devices"] = " ".join(run.devices)
        if run.slots:
            reported["slots"] = " ".join(run.slots)
        modes = {"amp": run.modes.amp, "compile": run.modes.compile, "ddp": run.modes.ddp}
        reported |= {name: str(value) for name, value in modes.items() if value is not None}
        return reported | {name: value for name, value in self.facts.config.items() if name not in reported}

    def drawn(self, names: Sequence[str]) -> dict[str, Drawn]:
        """Those of these numbers of the policy that have a past, as a collector's `history` has them."""
        found: dict[str, Drawn] = {}
        past = self.curves.past(self.began) if self.tracked is None else Past()
        answer = partial(of_snapshot, self.last, past) if self.tracked is None else self.tracked.history
        for place in range(0, len(names), MOST_CURVES):
            query = HistoryQuery(names=tuple(names[place : place + MOST_CURVES]), columns=MOST_COLUMNS)
            found |= {one.name: one for one in answer(query).curves}
        return {name: found[name] for name in names if name in found}

    def take(self, snapshot: Snapshot) -> None:
        """Go on with one snapshot."""
        now = snapshot.time - self.began
        self.last = snapshot
        self.curves.take(snapshot, self.began)
        verdict = snapshot.verdict
        last = self.verdicts[-1] if self.verdicts else None
        if last is None or (last.severity, last.text) != (verdict.severity, verdict.text):
            update = float(snapshot.run.update or 0)
            self.verdicts.append(
                Reported(at=now, update=update, severity=verdict.severity, text=verdict.text)
            )
        for lane in snapshot.system.gpus:
            if lane.bound is not None:
                extend(self.bounds.setdefault(lane.gpu_id, []), lane.bound.state, now, lane.bound)
        if (bound := snapshot.system.bound) is not None:
            extend(self.bounds.setdefault("", []), bound.state, now, bound)
        for env in snapshot.envs:
            run_history = self.envs.get(env.env_id)
            if run_history is None:
                run_history = self.envs[env.env_id] = EnvHistory(env_id=env.env_id)
            run_history.take(env, now)
        self.found.take(snapshot, self.began)


def histories(
    path: Path, recorded: Input, run_id: str | None = None, *, facts: bool = True
) -> dict[str, RunHistory]:
    """The story of every run, by id, in the order of their first snapshots; of one alone if it is there."""
    found: dict[str, RunHistory] = {}
    curves: defaultdict[str, Curves] = defaultdict(Curves)
    whole = recorded if isinstance(recorded, Recording) else None
    if whole is not None:
        whole.folded = lambda state, record, stamp: curves[record.origin.run_id].measure(state, record, stamp)
    for snapshot in recorded.recorded() if whole is None else whole.recorded(run_id):
        run = snapshot.run
        if run_id not in (None, run.run_id):
            continue
        run_history = found.get(run.run_id)
        if run_history is None:
            began = snapshot.time if run.started is None else min(run.started, snapshot.time)
            run_history = found[run.run_id] = RunHistory(
                path=path, began=began, first=snapshot, last=snapshot, curves=curves[run.run_id]
            )
        run_history.take(snapshot)
        if whole is None:
            run_history.facts.take_feed(snapshot.feed)
        else:
            run_history.tracked = None if whole.reached is None else whole.reached.tracked(run.run_id)
    if run_id is not None and not found:
        return histories(path, recorded, facts=facts)
    for record in _records(whole) if facts and whole is not None else ():
        of_run = found.get(record.origin.run_id)
        if of_run is not None:
            of_run.facts.take(record.event, of_run.began)
    return found


def _records(recording: Recording) -> Iterator[Record]:
    """All that producers sent, in order; of ranks that waited for their run's id, under that id."""
    joins = Joins()
    for stamp, batch in recording.reported():
        for record in batch.records:
            resolved = joins.resolve(record, stamp)
            yield from (waited for waited, _ in resolved.released)
            yield resolved.record


def one_of(path: Path, recorded: Input, found: Iterable[RunHistory], run_id: str | None) -> RunHistory:
    """The story that is meant, else the newest; raises `AnalyseError` naming those that there are."""
    known = {run_history.run.run_id: run_history for run_history in found}
    if not known:
        reasons = unshown(recorded) if isinstance(recorded, Recording) else ()
        raise AnalyseError("\n".join((f"{path} holds no run that can be replayed", *reasons)))
    if run_id is None:
        return max(known.values(), key=lambda run_history: run_history.last.time)
    if run_id not in known:
        raise AnalyseError(f"{path} holds no run {run_id}; it holds {', '.join(sorted(known))}")
    return known[run_id]
