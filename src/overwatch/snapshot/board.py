"""The flight board, the selected env and the fleet's rollups, as a view may know them."""

import msgspec

from overwatch.snapshot.system import Anomaly, Bound


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
