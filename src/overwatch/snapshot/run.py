"""Identity, progress, freshness and the one-line verdict of a run, as a view may know them."""

from typing import Final

import msgspec

SIMULATOR: Final = "overwatch-simulate"
"""`service.name` of the producer of scripted runs."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """The run's own task metric."""

    name: str
    unit: str
    higher_is_better: bool


class Modes(msgspec.Struct, frozen=True, kw_only=True):
    """How the trainer was built to run."""

    amp: str | None = None
    compile: bool | None = None
    ddp: int | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run got done at its best; what it does later, or another run, is compared with it."""

    name: str
    """`its best hour`, or another run's id."""
    unit: str
    """`steps` or `updates`."""
    rate: float
    """A second."""
    scatter: float = 0.0
    """Robust standard deviation over stretches of some updates."""
    phases: dict[str, float] = {}
    """Seconds in each phase for one step or update, over all ranks."""


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done a second, over whole updates, beside what was and what should be."""

    unit: str
    """`steps` or `updates`."""
    now: float
    """Of the newest stretches."""
    best: Baseline | None = None
    """This run's best hour, or its best minutes while it is younger."""
    baseline: Baseline | None = None
    """The run it is compared with, where that counts in the same unit."""


class Exemplar(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a phase that a trace shows."""

    bucket: int
    """Its place in the counts."""
    duration_s: float
    at: float
    """When it ended, Unix seconds of the producer."""
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""


class PhaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a phase took each time, over all ranks."""

    name: str
    counts: tuple[int, ...]
    """How many took up to 1, 3, 10, 30, 100, 300 ms, 1, 3, 10, 30, 100, 300 s and longer; not cumulated."""
    total_s: float
    """All durations together."""
    exemplars: tuple[Exemplar, ...] = ()
    """The newest that a trace shows, at most one a place."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and progress."""

    run_id: str
    task: str | None = None
    algo: str | None = None
    reward_mode: str | None = None
    group: str | None = None
    """The arm of a comparison that it belongs to."""
    attempt: int | None = None
    """How often its launcher had started it before."""
    node: str | None = None
    devices: tuple[str, ...] = ()
    ranks: int | None = None
    n_envs: int | None = None
    slots_enabled: bool = False
    git_sha: str | None = None
    dirty: bool | None = None
    modes: Modes = Modes()
    preset: str = "ppo"
    metric: Metric | None = None
    blueprints: dict[str, str] = {}
    """Blueprint id to its two-letter code."""
    slots: tuple[str, ...] = ()
    """Slot names in the run's order."""
    embargo: int | None = None
    """Steps for which a slot stays embargoed."""
    episode: int | None = None
    batch: int | None = None
    """Batches learned from, of a run that plans them."""
    batches: int | None = None
    update: int | None = None
    updates: int | None = None
    started: float | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    checkpoint_age_s: float | None = None
    checkpoint_path: str | None = None
    steps: int | None = None
    steps_per_s: float | None = None
    throughput: Throughput | None = None
    outcome: str | None = None
    """`completed`, `failed`, `interrupted` or `lost` once the run has ended."""
    reason: str | None = None
    control: str | None = None
    """Its state by who controls it, e.g. `running`, `paused`; absent where nobody does."""
    command: str | None = None
    """The newest command that ended, and how: `tune done`."""
    service: str | None = None
    """`service.name` of its producers, with its namespace before it."""
    instance: str | None = None
    """`service.instance.id` of the life that leads it: the newest of the trainer's rank 0, else of any."""

    @property
    def simulated(self) -> bool:
        """Whether a script wrote it and nothing was trained."""
        return self.service == SIMULATOR


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One producer of this run."""

    name: str
    age_s: float
    interval_s: float | None = None
    dropped: int | None = None
    overlapping: bool = False
    """Whether another process speaks for the same role and rank at the same time."""
    clock_ahead_s: float | None = None
    """How far its clock is ahead of the collector's at the least, seconds; absent below 2."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is shown is fresh."""

    state: str
    """`live`, `slow`, `stale`, `silent`, `catching_up`, `lost` or `ended`."""
    data_age_s: float | None = None
    lag_s: float | None = None
    last_at: float | None = None
    """Producer's time of the newest record, Unix seconds."""
    last_from: str | None = None
    """Who told it: `rank 0`, or the role with the rank."""
    away_s: float | None = None
    """While what a spool kept comes in: how long nothing had come before."""
    speed: float | None = None
    """While what a spool kept comes in: seconds of the run told in one second."""
    dropped: int | None = None
    sources: tuple[Source, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that says how the run is."""

    severity: str
    """`ok`, `info`, `warning` or `critical`."""
    text: str
    """Moments in it are in UTC, as ISO 8601."""
    note: str | None = None
    """What is to be known beside the text, for the end of its line."""
    counts: dict[str, int] = {}
    """Open findings by severity."""
    acknowledged: int = 0
