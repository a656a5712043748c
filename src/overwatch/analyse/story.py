"""The story of one run: its curves, findings, bounds, envs, and what it said of itself.

Owns what is remembered of a whole recording, read once. Times are seconds since the run began, unless they
are called Unix. Must not know who tells the story.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from overwatch.analyse.curves import Curves
from overwatch.analyse.facts import Facts
from overwatch.analyse.found import Findings, Found
from overwatch.analyse.source import AnalyseError, Source, open_source
from overwatch.analyse.spells import EnvStory, Spells
from overwatch.analyse.verdicts import Told, Verdicts
from overwatch.projection.history import of_snapshot
from overwatch.runs import Tracked
from overwatch.snapshot import Run, Snapshot
from overwatch.snapshot.history import MOST_COLUMNS, MOST_CURVES, Ask
from overwatch.snapshot.history import Curve as Drawn
from overwatch.state.past import Past


@dataclass(slots=True, kw_only=True)
class Story:
    """One run, as it was recorded."""

    path: Path
    began: float
    """Unix seconds."""
    first: Snapshot
    last: Snapshot
    curves: Curves = field(default_factory=Curves)
    found: Findings = field(default_factory=Findings)
    """Every finding over its life."""
    bounds: Spells = field(default_factory=Spells)
    """By lane: what held it back. The run as a whole is the empty name."""
    envs: dict[int, EnvStory] = field(default_factory=dict)
    """Those that were ever among the rows of a snapshot."""
    verdict: Verdicts = field(default_factory=Verdicts)
    """What was said of it over time."""
    facts: Facts = field(default_factory=Facts)
    """What it told; empty where only snapshots were kept."""
    tracked: Tracked | None = None
    """What its records were folded to; absent where only snapshots were kept."""

    @property
    def run(self) -> Run:
        """Identity and progress, as last told."""
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
    def verdicts(self) -> list[Told]:
        """What was said of it, in order."""
        return self.verdict.told

    @property
    def config(self) -> dict[str, str]:
        """What it was started with, by name: its own settings, and what Overwatch knows of every run."""
        run, told = self.run, {}
        for name in ("task", "algo", "reward_mode", "preset", "n_envs", "ranks", "git_sha", "dirty", "node",
                     "updates", "batches", "embargo", "group"):  # fmt: skip
            value = getattr(run, name)
            if value is not None:
                told[name] = str(value)
        if run.devices:
            told["devices"] = " ".join(run.devices)
        if run.slots:
            told["slots"] = " ".join(run.slots)
        modes = {"amp": run.modes.amp, "compile": run.modes.compile, "ddp": run.modes.ddp}
        told |= {name: str(value) for name, value in modes.items() if value is not None}
        return told | {name: value for name, value in self.facts.config.items() if name not in told}

    def drawn(self, names: Sequence[str]) -> dict[str, Drawn]:
        """Those of these numbers of the policy that have a past, as a collector's `history` has them."""
        found: dict[str, Drawn] = {}
        past = self.curves.past(self.began) if self.tracked is None else Past()
        answer = partial(of_snapshot, self.last, past) if self.tracked is None else self.tracked.history
        for place in range(0, len(names), MOST_CURVES):
            ask = Ask(names=tuple(names[place : place + MOST_CURVES]), columns=MOST_COLUMNS)
            found |= {one.name: one for one in answer(ask).curves}
        return {name: found[name] for name in names if name in found}

    def take(self, snapshot: Snapshot) -> None:
        """Go on with one snapshot."""
        now = snapshot.time - self.began
        self.last = snapshot
        self.curves.take(snapshot, self.began)
        self.verdict.take(snapshot, now)
        for lane in snapshot.system.gpus:
            if lane.bound is not None:
                self.bounds.add(lane.gpu_id, lane.bound.state, now, lane.bound)
        if snapshot.system.bound is not None:
            self.bounds.add("", snapshot.system.bound.state, now, snapshot.system.bound)
        for env in snapshot.envs:
            story = self.envs.get(env.env_id)
            if story is None:
                story = self.envs[env.env_id] = EnvStory(env_id=env.env_id)
            story.take(env, now)
        self.found.take(snapshot, self.began)


def stories(source: Source, run_id: str | None = None, *, facts: bool = True) -> dict[str, Story]:
    """The story of every run, by id, in the order of their first snapshots; of one alone if it is there."""
    told: dict[str, Story] = {}
    for snapshot in source.snapshots(run_id):
        run = snapshot.run
        story = told.get(run.run_id)
        if story is None:
            began = snapshot.time if run.started is None else min(run.started, snapshot.time)
            story = told[run.run_id] = Story(path=source.path, began=began, first=snapshot, last=snapshot)
        story.take(snapshot)
        story.tracked = source.tracked(run.run_id)
        if not source.tells:
            story.facts.take_feed(snapshot.feed)
    if run_id is not None and not told:
        return stories(source, facts=facts)
    for record in source.records() if facts else ():
        of_run = told.get(record.origin.run_id)
        if of_run is not None:
            of_run.facts.take(record.event, of_run.began)
    return told


def read_story(path: Path, run_id: str | None = None, *, facts: bool = True) -> Story:
    """The story of one run at a path: the one named, else the one that was heard of last.

    Raises `AnalyseError` where there is none.
    """
    source = open_source(path)
    return one_of(source, stories(source, run_id, facts=facts).values(), run_id)


def one_of(source: Source, told: Iterable[Story], run_id: str | None) -> Story:
    """The story that is meant; raises `AnalyseError` naming those that there are."""
    path, known = source.path, {story.run.run_id: story for story in told}
    if not known:
        raise AnalyseError("\n".join((f"{path} holds no run that can be replayed", *source.reasons())))
    if run_id is None:
        return max(known.values(), key=lambda story: story.last.time)
    if run_id not in known:
        raise AnalyseError(f"{path} holds no run {run_id}; it holds {', '.join(sorted(known))}")
    return known[run_id]
