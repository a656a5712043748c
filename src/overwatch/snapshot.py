"""WHAT a view may know: frozen, ordered, versioned types only.

A snapshot is complete: already ranked, grouped, cut and judged. A view never sorts, sums or judges.
Fields whose source is not there are present and `None`; lists that nothing filled are empty.
Must not know how any of it was computed. Times are Unix seconds, durations seconds, sizes bytes.
"""

from typing import Final

import msgspec

SCHEMA_VERSION: Final = "1.0"


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


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and progress."""

    run_id: str
    task: str | None = None
    algo: str | None = None
    reward_mode: str | None = None
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
    episode: int | None = None
    batch: int | None = None
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
    outcome: str | None = None
    """`completed`, `failed` or `interrupted` once the run has ended."""
    reason: str | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One producer of this run."""

    name: str
    age_s: float
    interval_s: float | None = None
    dropped: int | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is shown is fresh."""

    state: str
    """`live`, `slow`, `stale` or `ended`."""
    data_age_s: float | None = None
    lag_s: float | None = None
    dropped: int | None = None
    sources: tuple[Source, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one line that says how the run is."""

    severity: str
    """`ok`, `info`, `warning` or `critical`."""
    text: str
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
    label: str = ""
    text: str = "–"
    """The value as shown."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a machine back, and why we think so."""

    state: str
    why: str | None = None
    hint: str | None = None
    confidence: float | None = None
    evidence: tuple[str, ...] = ()
    mark: str = ""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that envs run on."""

    gpu_id: str
    uuid: str | None = None
    rank: int | None = None
    utilization: float | None = None
    utilization_history: tuple[float | None, ...] = ()
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_hz: float | None = None
    clock_max_hz: float | None = None
    throttle: tuple[str, ...] = ()
    age_s: float | None = None
    bound: Bound | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the trainer runs on."""

    cpu_utilization: float | None = None
    cpu_history: tuple[float | None, ...] = ()
    ram_used_bytes: float | None = None
    ram_total_bytes: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    loader_depth: float | None = None
    loader_capacity: float | None = None
    age_s: float | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """All lanes, the host, and the run's bound as a whole."""

    gpus: tuple[Lane, ...] = ()
    host: Host | None = None
    bound: Bound | None = None


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """How far an env is from normal, with reasons, strongest first."""

    score: float
    reasons: tuple[str, ...] = ()


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of one env."""

    stage: str
    glyph: str
    blueprint: str | None = None
    alpha: float | None = None
    age: int | None = None
    gate: str | None = None
    """Last gate and its result, e.g. `G2 passed`."""


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


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """The selected env."""

    env_id: int
    history: dict[str, tuple[float | None, ...]] = {}
    actions: tuple[str, ...] = ()
    """Newest first, with the step where it is known: `88,214 PRUNE r1c1`."""
    events: tuple[str, ...] = ()
    env: Env | None = None
    """Its row of the board, which the board itself may hide; absent for an env never seen."""
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


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """An env at one end of the fleet."""

    env_id: int
    field: str
    value: float


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
    lanes: tuple[LaneAggregates, ...] = ()
    """In the order of the board's groups."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding is about."""

    scope: str
    id: str | None = None


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
    runbook_url: str | None = None


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
    """Run counters by short catalogue name; present at 0 from the run's first snapshot."""
    timing: Timing | None = None
