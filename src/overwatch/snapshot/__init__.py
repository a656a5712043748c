"""WHAT a view may know: frozen, ordered, versioned types only.

A snapshot is complete: already ranked, grouped, cut and judged. A view never sorts, sums or judges.
Fields whose source is not there are present and `None`; lists that nothing filled are empty.
Must not know how any of it was computed. Times are Unix seconds, durations seconds, sizes bytes.
"""

from typing import Final

import msgspec

from overwatch.snapshot.machines import (
    Anomaly,
    Bound,
    Host,
    Lane,
    Process,
    Sample,
    Service,
    Spread,
    System,
    Tally,
    Total,
)
from overwatch.snapshot.runs import RunLine, RunList

__all__ = [
    "Anomaly", "Bound", "Host", "Lane", "Process", "RunLine", "RunList", "Sample", "Service", "Spread",
    "System", "Tally", "Total",
]  # fmt: skip
"""What is known of machines, services and the list of runs is defined beside this module, and imported from
here."""

SCHEMA_VERSION: Final = "1.6"
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
    """Its state by what controls it, e.g. `running`, `paused`; absent where nothing does."""
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
    """Whether another process reports as the same role and rank at the same time."""
    clock_ahead_s: float | None = None
    """How far its clock is ahead of the collector's at the least, seconds; absent below 2."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is shown is fresh."""

    state: str
    """`live`, `slow`, `stale`, `silent`, `catching_up`, `lost` or `ended`."""
    halted: str | None = None
    """`paused` or `stalled` while telemetry comes and training does not go on."""
    data_age_s: float | None = None
    lag_s: float | None = None
    last_at: float | None = None
    """Producer's time of the newest record, Unix seconds."""
    last_from: str | None = None
    """Who reported it: `rank 0`, or the role with the rank."""
    away_s: float | None = None
    """While what a spool kept comes in: how long nothing had come before."""
    speed: float | None = None
    """While what a spool kept comes in: seconds of the run received in one second."""
    dropped: int | None = None
    sources: tuple[Source, ...] = ()

    @property
    def word(self) -> str:
        """The state as people read it: of training where that does not go on, else of the telemetry."""
        return self.halted or self.state


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that states how the run is."""

    severity: str
    """`ok`, `info`, `warning` or `critical`."""
    text: str
    """Moments in it are in UTC, as ISO 8601."""
    note: str | None = None
    """What is to be known beside the text, for the end of its line."""
    counts: dict[str, int] = {}
    """Open findings by severity."""
    acknowledged: int = 0


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit that a value crossed, else the nearest one."""

    text: str
    """As shown, e.g. `>.015` or `>4.0×`."""
    value: float
    """In the row's unit; relative limits are already multiplied out."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One policy value with its judgement."""

    value: float | None = None
    status: str = "absent"
    """`ok`, `warning`, `critical` or `absent`."""
    non_finite: str | None = None
    """`nan`, `inf`, `-inf`, or `undefined` where the row allows it."""
    limit: Limit | None = None
    trend: str | None = None
    """`up`, `flat` or `down`."""
    direction: str | None = None
    """Which way is good: `up`, `down`, or absent where neither is."""
    age_s: float | None = None
    history: tuple[float | None, ...] = ()
    """At most ten values, newest last; `None` where an update had no finite one."""
    scale: tuple[float, float] | None = None
    """Ends of the sparkline: the healthy end and the critical limit; absent means its own window."""
    spread: float | None = None
    """Largest minus smallest over the ranks; absent with one rank."""
    label: str = ""
    text: str = "–"
    """The value as shown."""
    warnings: int = 0
    """Updates so far that were beyond the warning limit and not beyond the critical one."""
    criticals: int = 0
    """Updates so far that were beyond the critical limit, or not finite."""
    role: str | None = None
    """Of a service's number the role of the process that reports it..."""
    rank: int | None = None
    """...and its rank."""


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy is paid by beside what is really wanted; see the finding `reward-hacking`."""

    state: str
    """`no-true-signal` and `waiting` abstain; else `together`, `parted`, or `parting` until that is held."""
    text: str
    """The state in words, with numbers."""
    gap: float | None = None
    """How far the proxy return is ahead: each as a place between its lowest and its highest, -1 to 1."""
    pairs: int = 0
    """Updates so far that had both returns."""
    needed: int = 0
    """Of them, the least before there is a verdict."""
    way: str | None = None
    """How they part: the true return `falls`, stays `flat`, or what is eaten follows the draw (`shares`)."""
    factors: tuple[str, ...] = ()
    """What shows it, while the finding stands."""


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One slot of one env."""

    stage: str
    glyph: str
    blueprint: str | None = None
    alpha: float | None = None
    age: int | None = None
    gate: str | None = None
    """Last gate and its result: `G2 0.71` or `G2 passed`, `G2 fail: gradient ratio` or `G2 fail`."""
    grad: float | None = None
    """Gradient health of the seed, 0 to 1, as last measured."""


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the flight board."""

    env_id: int
    gpu_id: str | None = None
    status: str = "ok"
    """`ok`, `stalled`, `degraded`, `diverging`, `crashed` or `unknown`."""
    reward: float | None = None
    episode_return: float | None = msgspec.field(default=None, name="return")
    metric: float | None = None
    rent: float | None = None
    step_time_s: float | None = None
    fps: float | None = None
    last_action: str | None = None
    stale: bool = False
    anomaly: Anomaly
    slots: dict[str, Slot] = {}


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The envs of one lane, worst group first; its rows follow in `envs` order."""

    gpu_id: str | None
    n_envs: int
    counts: dict[str, int]
    """Envs by status."""
    median_return: float | None = None
    median_metric: float | None = None
    median_rent: float | None = None
    median_fps: float | None = None
    p10_return: float | None = None
    p90_return: float | None = None
    hidden: int = 0
    """Envs of this lane that are not among the rows."""
    anomaly: Anomaly | None = None
    """How far the lane is from the others; absent for envs without a lane."""


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What heads the flight board."""

    sort: str = "anomaly"
    direction: str = "desc"
    filter: str | None = None
    held: bool = False
    counts: dict[str, int] = {}
    """Envs by status, of those that pass the filter; the groups count these too."""
    matched: int | None = None
    """How many envs pass the filter; absent without one."""
    total: int | None = None
    """How many rows there are in this order, shown or not."""
    offset: int | None = None
    """How many of them come before the first that is shown; absent without a window."""
    groups: tuple[Group, ...] = ()
    columns: tuple[str, ...] = ()
    """Optional columns that this run reports, in order: `return`, `reward`, `metric`, `rent`, ..."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for an env's score."""

    name: str
    weight: float
    text: str


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """How one value of the selected env moved, oldest first."""

    values: tuple[float | None, ...]
    window: str
    """What the values span, e.g. `24 episodes` or `last 150 steps`."""


class SeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One lifecycle event of the selected env."""

    time: float
    slot: str
    text: str
    """e.g. `BLENDING>PRUNED`."""
    why: str = ""
    """e.g. `G2: gradient ratio 0.04 < 0.10` or `by policy, age 9`."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that the policy took or might have taken."""

    op: str
    probability: float


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that a slot entered, and when."""

    time: float
    stage: str
    glyph: str


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """The selected env."""

    env_id: int
    history: dict[str, tuple[float | None, ...]] = {}
    actions: tuple[str, ...] = ()
    """Newest first, with the step where it is known: `88,214 PRUNE r1c1`."""
    events: tuple[str, ...] = ()
    env: Env | None = None
    """Its row of the board, which the board itself may hide; absent for an env that is not there."""
    removed_at: float | None = None
    """When the trainer removed it, Unix seconds; absent for an env that is there or never was."""
    rank: int | None = None
    """Its place among all envs, 1 being the worst."""
    num_envs: int | None = None
    reasons: tuple[Reason, ...] = ()
    """All reasons for its score, strongest first."""
    bound: Bound | None = None
    """What holds its lane back."""
    trends: dict[str, Trend] = {}
    seed_events: tuple[SeedEvent, ...] = ()
    """Newest first."""
    numbers: dict[str, float] = {}
    """Further rows of the env by short name, e.g. `host_loss`, `synergy`, `rollbacks`."""
    slots: dict[str, dict[str, float]] = {}
    """Further rows of each of its slots by short name, e.g. `contribution`, `shapley`."""
    choice: tuple[Choice, ...] = ()
    """The operation that the policy took last, then those that were likeliest beside it."""
    lives: dict[str, tuple[Stay, ...]] = {}
    """What each slot went through, oldest first."""


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """An env at one end of the fleet."""

    env_id: int
    field: str
    value: float


class BestEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One of the best episodes of the run."""

    env_id: int
    time: float
    """When it ended, Unix seconds."""
    number: int
    """Of those that its env finished, from 1."""
    values: dict[str, float] = {}
    """What was reported of it: `episode_return`, `length`, `metric`, `best`, `best_step`, `growth_ratio`,
    `fossils`, `prunes`."""


class LaneAggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Rollups over the envs of one lane."""

    gpu_id: str | None
    seed_census: dict[str, int] = {}
    actions: dict[str, float] = {}
    """Share of each operation over the recent actions of each env."""


class Aggregates(msgspec.Struct, frozen=True, kw_only=True):
    """Rollups over the whole fleet."""

    seed_census: dict[str, int] = {}
    actions: dict[str, float] = {}
    """Share of each operation over the recent actions."""
    best: tuple[Best, ...] = ()
    worst: tuple[Best, ...] = ()
    episodes: tuple[BestEpisode, ...] = ()
    """The best ones, best first: by the best of their metric, else by its last, else by their return."""
    mean_best: float | None = None
    """Mean over all finished episodes of what they are compared by."""
    lanes: tuple[LaneAggregates, ...] = ()
    """In the order of the board's groups."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding is about."""

    scope: str
    id: str | None = None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The runbook of a finding."""

    means: str
    """What is the matter."""
    confirm: str
    """How to see that it is so."""
    act: str
    """What to do, first things first."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with the next step."""

    id: str
    code: str
    severity: str
    subject: Subject
    since: float
    message: str
    hint: str = ""
    factors: tuple[str, ...] = ()
    symptoms: int = 0
    acknowledged: bool = False
    cleared_at: float | None = None
    ended_at: float | None = None
    """When the run ended while it was open: it has not cleared, and is not judged any more."""
    runbook_url: str | None = None
    """An address of the runbook, where there is a page of it."""
    runbook: Advice | None = None
    """Its text; absent for what a user's own rules find."""


class FeedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the raw feed, structured."""

    time: float
    severity: str
    subsystem: str
    message: str
    env_id: int | None = None
    gpu_id: str | None = None
    slot: str | None = None
    seed_id: str | None = None
    kind: str = "log"
    """The event's tag, for the feed's toggles."""
    fields: dict[str, str] = {}
    chip: str | None = None
    """The slot as a chip, of a line about a seed: `◑r0c1 cs .42`."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader wants to see. `View()` is what the recorder writes and what "equal" means."""

    rows: int = 256
    """Most env rows in the snapshot; the worst come first."""
    env_id: int | None = None
    """The env whose detail is shown."""
    sort: str = "anomaly"
    """What the rows are ordered by: `anomaly`, `env`, `return`, `reward`, `metric` or `fps`."""
    descending: bool = True
    filter: str = ""
    """Which envs the board shows, e.g. `status=degraded gpu=0`; all without."""
    grouped: bool = True
    """Rows lane by lane; otherwise in one order over all lanes."""
    offset: int | None = None
    """Where a window into all rows begins, as they are ordered and grouped. Without it the rows are the worst
    of all lanes, grouped after they were chosen."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Render times; filled by the reader, absent in recordings."""

    last_render_ms: float | None = None
    mean_render_ms: float | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one view may show of one run at one tick."""

    schema_version: str = SCHEMA_VERSION
    time: float
    """The tick, Unix seconds on the stamp clock."""
    run: Run
    link: Link
    verdict: Verdict
    policy: dict[str, Reading] = {}
    """By short name; a row of the catalogue that is not here is absent."""
    parting: Parting | None = None
    """How the proxy return and the true one part; absent where neither is reported."""
    services: dict[str, Reading] = {}
    """What services report, by full name; of several processes the first by role and rank, the others with
    `#role/rank` behind the name."""
    processes: tuple[Service, ...] = ()
    """Processes of services, worst first."""
    tallies: tuple[Tally, ...] = ()
    """What processes count by labels, by name, process and labels."""
    totals: dict[str, Total] = {}
    """The same over all processes and labels, by name."""
    system: System = System()
    board: Board = Board()
    envs: tuple[Env, ...] = ()
    detail: Detail | None = None
    aggregates: Aggregates = Aggregates()
    findings: tuple[Finding, ...] = ()
    feed: tuple[FeedLine, ...] = ()
    """Oldest first."""
    feed_rate: float | None = None
    counters: dict[str, float] = {}
    """Run counters by short catalogue name; present at 0 from the run's first snapshot.
    Env steps are absent until some are known."""
    phases: tuple[PhaseTimes, ...] = ()
    """The phases that took most of the run's time, at most eight, by name."""
    timing: Timing | None = None

    @property
    def updates_done(self) -> int | None:
        """How many updates there were: programs number them from 0 or from 1, or go on from a checkpoint."""
        newest = self.run.update
        return None if newest is None else max(newest, int(self.counters.get("updates", 0)))
