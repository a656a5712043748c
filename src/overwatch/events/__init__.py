"""WHAT can happen: frozen facts and the closed union `Event`.

Owns every kind of thing a producer can report. Numbers are `Measured`, counters and histograms with labels
`Tallied`; everything else is a fact in the past tense. A new fact breaks the type check until every `match`
handles it.

Rules: `at` is the producer's time in Unix nanoseconds. Absent is `None`, never 0. Validation happens on
construction, so an event that exists is well formed. Must not know OTLP, state or views; loads NumPy only
when a column is made or read as an array.
"""

from enum import Enum
from typing import Annotated, Final, TypeAlias

import msgspec

from overwatch.catalog import Scope, Stage
from overwatch.catalog.presets import preset_for
from overwatch.events.values import MAX_ROWS, Buckets, Column, Sample, TallySeries, scalars

__all__ = ["MAX_ROWS", "Buckets", "Column", "Sample", "TallySeries", "scalars"]
"""What the events carry is defined beside this module, and imported from here."""

PENDING: Final = "pending-"
"""How the stand-in for a run id begins, while a rank waits for rank 0 to report which run they are."""

FOLLOWER: Final = "overwatch-follow"
"""`service.name` of what follows the files of a program, and knows nothing of its process."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The producer: one process of one attempt of one run."""

    run_id: str
    role: str = "trainer"
    rank: int = 0
    epoch: str = ""
    """Distinguishes two lives of the same (run, role, rank)."""
    join: str | None = None
    """Shared by the ranks of one launch that was given no run id; rank 0's id is then that of all."""
    ours: bool = False
    """Sent by Overwatch's SDK: folded from events, its OTLP metrics are for third parties."""
    task: str | None = None
    algo: str | None = None
    is_implied: bool = False
    """It names no run: the id is made of its service's name."""
    service: str | None = None
    """`service.name` of its resource, with `service.namespace/` before it where there is one."""


class Severity(Enum):
    """How bad; also the word in JSON."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for debug up to 3 for critical."""
        return _SEVERITY_RANK[self]


_SEVERITY_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What all events have: the producer's time."""

    at: int
    """Producer's Unix time in nanoseconds."""


class MetricInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run's own task metric."""

    name: str
    unit: str = "1"
    higher_is_better: bool = True


class RunStarted(Fact, frozen=True, kw_only=True, tag="run_started"):
    """A trainer began; what it is."""

    task: str | None = None
    """What is trained on."""
    algo: str | None = None
    """The algorithm that trains, e.g. `ppo`."""
    reward_mode: str | None = None
    """How rewards are made, where the task has several ways."""
    n_envs: int | None = None
    """Environments of this rank."""
    devices: tuple[str, ...] = ()
    """Lane ids: a GPU's UUID, `cpu`, or a name of the trainer's own."""
    lanes: dict[str, str] = msgspec.field(default_factory=dict)
    """What the trainer calls a lane, by lane id: `cuda:0`; lanes that are called by their id are left out."""
    slots: tuple[str, ...] = ()
    """Slot names in the run's order; empty when the run has none."""
    embargo: int | None = None
    """Steps for which a slot stays embargoed after a prune; absent where the run has no such rule."""
    blueprints: dict[str, str] = msgspec.field(default_factory=dict)
    """Blueprint id to its two-letter code."""
    metric: MetricInfo | None = None
    """The task's own metric."""
    preset: str | None = None
    """Whose limits judge the run; where it is left out, those that suit its algorithm."""
    updates: int | None = None
    """Planned number of updates."""
    resumed: int | None = None
    """Updates that it has behind it, where it goes on from a checkpoint: what it repeats of a life before is
    counted once."""
    batches: int | None = None
    """Planned number of batches."""
    git_sha: str | None = None
    """Revision of the trainer."""
    dirty: bool | None = None
    """Whether tracked files differ from the revision."""
    node: str | None = None
    """Name of the machine."""
    amp: str | None = None
    """Type of automatic mixed precision, e.g. `bf16`."""
    compile: bool | None = None
    """Whether the model is compiled."""
    ddp: int | None = None
    """Processes that share gradients."""
    world_size: int | None = None
    """Ranks of the launch."""
    attempt: int | None = None
    """How often the launcher had started the run before."""
    group: str | None = None
    """The arm of a comparison that the run belongs to."""
    env_offset: int = 0
    """What was added to this rank's own env numbers to make env ids."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """The trainer's settings, as text by name."""

    @property
    def chosen(self) -> str | None:
        """Whose limits judge the run, by its word or its algorithm; `None` leaves it to its numbers."""
        return self.preset or (None if self.algo is None else preset_for(self.algo))


class RunFinished(Fact, frozen=True, kw_only=True, tag="run_finished"):
    """A trainer ended: by itself, or as its exporter saw its process go.

    A second one of the same producer puts the first right.
    """

    outcome: str
    """`completed`, `failed`, `interrupted`; `lost` where a process was killed or went in an unknown way."""
    reason: str | None = None
    """Why, in words: an exception, `exit status 3`, `trainer killed by signal 9 (SIGKILL)`."""


class Conflated(msgspec.Struct, frozen=True, kw_only=True):
    """What several measurements were before they became one, so that no breach is lost between them."""

    n: int
    """Measurements; the values are those of the last."""
    first: int | None = None
    """Number of the first, as `Measured.index` is of the last."""
    updates: int | None = None
    """Policy updates that this record adds; absent in older recordings, where they are `n`. Updates with
    several sets of names are one record for each set: the first counts them all, the others none."""
    low: dict[str, Column] = {}
    """Smallest finite values, of the rows that have limits."""
    high: dict[str, Column] = {}
    warnings: dict[str, int] = {}
    """Values beyond the warning limit, not the critical one, by name; relative limits are not counted."""
    criticals: dict[str, int] = {}


class Measured(Fact, frozen=True, kw_only=True, tag="measured"):
    """Numbers of one scope at one moment.

    `keys` name the subjects (`env_id`, `slot`, `gpu_id`), one entry a row; empty where the scope has one
    subject. `values` maps catalogue names (or custom ones) to columns of the same length.
    """

    scope: Scope
    values: dict[str, Column]
    keys: dict[str, Column] = msgspec.field(default_factory=dict)
    index: int | None = None
    """Number of the update (scope policy) or of the env step (scopes env and slot)."""
    conflated: Conflated | None = None
    """Present when this stands for several measurements."""

    def updates(self, before: int | None) -> int:
        """How many updates this adds to a run whose newest update has the number `before`.

        Measurements of one number that follow one another are one update.
        """
        many = self.conflated or Conflated(n=1, first=self.index, updates=1)
        if many.updates is None:
            return 0 if self.index is not None and self.index == before else max(many.n, 1)
        again = many.first is not None and many.first == before
        return max(many.updates - again, 0)

    def __post_init__(self) -> None:
        if len({*map(len, self.keys.values()), *map(len, self.values.values())}) > 1:
            lengths = {name: len(column) for name, column in (*self.keys.items(), *self.values.items())}
            named = ", ".join(f"{name}={length}" for name, length in lengths.items())
            raise ValueError(f"columns of one measurement differ in length: {named}")
        if not self.keys and self.scope in _KEYED:
            raise ValueError(f"a measurement of scope {self.scope.value} needs keys: {_KEYED[self.scope]}")


_KEYED: Final = {Scope.ENV: "env_id", Scope.SLOT: "env_id and slot", Scope.GPU: "gpu_id"}


class Tallied(Fact, frozen=True, kw_only=True, tag="tallied"):
    """Counters and histograms of one scope, as one producer has counted them since it began."""

    scope: Scope
    series: tuple[TallySeries, ...]
    """Those that changed since the record before, or all of them."""


class EpisodeEnded(Fact, frozen=True, kw_only=True, tag="episode_ended"):
    """Episodes that ended at one step; one row an env, columns of the same length."""

    env_id: Column
    episode_return: Column
    length: Column | None = None
    metric: Column | None = None
    best: Column | None = None
    """The best that the metric was in each episode."""
    best_step: Column | None = None
    """Steps of the episode until then."""
    growth_ratio: Column | None = None
    """Size of the env's network at the end over its size at the start."""
    fossils: Column | None = None
    """Seeds that had become part of it."""
    prunes: Column | None = None
    """Seeds that were pruned."""
    step: int | None = None
    """Number of the env step."""
    trace_id: str | None = None
    """Of the span of the phase in which they ended, 32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""


class ActionTaken(Fact, frozen=True, kw_only=True, tag="action_taken"):
    """What the policy did at one step; one row an env."""

    env_id: Column
    op: Column
    """Dictionary-coded operation names."""
    slot: Column | None = None
    """Dictionary-coded slot names; absent where the operation has none."""
    blueprint: Column | None = None
    step: int | None = None
    """Number of the env step."""
    confidence: Column | None = None
    """Probability that the policy gave to the operation, 0 to 1."""
    second: Column | None = None
    """Dictionary-coded names of the likeliest operation that it did not take."""
    second_confidence: Column | None = None
    third: Column | None = None
    """Dictionary-coded names of the likeliest one after that."""
    third_confidence: Column | None = None


class SeedStageChanged(Fact, frozen=True, kw_only=True, tag="seed_stage_changed"):
    """A seed moved from one stage to the next."""

    env_id: int
    slot: str
    seed_id: str
    before: Stage
    """The stage that was left, or what was before."""
    after: Stage
    """The stage that was entered, or what is now."""
    blueprint: str | None = None
    """What the seed grows into."""
    alpha: float | None = None
    """How much of the seed counts, 0 to 1."""
    age: int | None = None
    """Steps spent in the stage that was left."""
    reason: str | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    """Further fields, as text by name."""


class GateEvaluated(Fact, frozen=True, kw_only=True, tag="gate_evaluated"):
    """A gate of the lifecycle was checked."""

    env_id: int
    slot: str
    seed_id: str
    gate: str
    """Name of the gate."""
    passed: bool
    """Whether it let the seed pass."""
    score: float | None = None
    """What the gate measured."""
    checks_passed: tuple[str, ...] = ()
    """Names of the checks that held."""
    checks_failed: tuple[str, ...] = ()
    """Names of the checks that did not."""
    message: str | None = None
    """The gate's message, in words."""


class EnvCrashed(Fact, frozen=True, kw_only=True, tag="env_crashed"):
    """An environment died; it counts as crashed until it reports numbers again."""

    env_id: int
    error: str = ""
    """The error, in one line; empty where it is not known."""
    step: int | None = None
    traceback: str | None = None
    """Where it came from."""


class EnvRolledBack(Fact, frozen=True, kw_only=True, tag="env_rolled_back"):
    """The network that an environment trains was set back to an earlier state; its episode goes on."""

    env_id: int
    reason: str
    """What was wrong with it: `nan`, `lobotomy`, `divergence`."""
    step: int | None = None
    """Number of the env step."""


class EnvsRemoved(Fact, frozen=True, kw_only=True, tag="envs_removed"):
    """Envs that are no more, one row an env; one that reports again later is another env of the same id."""

    env_id: Column
    metrics: tuple[str, ...] = ()
    """Catalogue names of the only values that ended; empty where the envs themselves did."""


class NonFiniteSeen(Fact, frozen=True, kw_only=True, tag="non_finite_seen"):
    """A value that must be finite was not."""

    scope: Scope
    metric: str
    kind: str
    """`nan` or `inf`."""
    count: int = 1
    """Values that were not finite."""
    env_ids: tuple[int, ...] = ()
    """At most sixteen of the envs concerned."""


class EarlyStopped(Fact, frozen=True, kw_only=True, tag="early_stopped"):
    """PPO stopped an update before its last epoch."""

    update: int
    """Number of the update."""
    epoch: int
    """The epoch at which it stopped."""
    kl_divergence: float
    """Divergence at which it stopped, in nats."""
    target: float
    """Divergence that was aimed at, in nats."""
    minibatches_skipped: int
    """Minibatches that were left out."""


class CurriculumChanged(Fact, frozen=True, kw_only=True, tag="curriculum_changed"):
    """The task became another one: what episodes earn before and after does not compare."""

    name: str
    """What changed, e.g. `level`."""
    before: str | None = None
    after: str | None = None
    env_id: Column | None = None
    """Envs concerned, one row an env; all of them when absent."""


class CheckpointSaved(Fact, frozen=True, kw_only=True, tag="checkpoint_saved"):
    """The trainer wrote down what it can go on from."""

    path: str
    """Where it lies."""
    update: int | None = None
    """Updates that it holds."""
    size_bytes: int | None = None
    """Its size in bytes."""
    duration_s: float | None = None
    """Seconds that saving took."""
    trace_id: str | None = None
    """Of the span of the phase in which it was saved, 32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""


class TrainingRecovered(Fact, frozen=True, kw_only=True, tag="training_recovered"):
    """Numbers of an update were broken, and training did something about it."""

    action: str
    """What it did: `skip`, `learning_rate_cut`, `rollback`, or a word of the trainer's own."""
    update: int | None = None
    """The update at which it was done."""
    cause: int | None = None
    """The update whose numbers were broken: numbers arrive later than they are made."""
    before: float | None = None
    """Of a cut the learning rate before, of a rollback the update that was left."""
    after: float | None = None
    """Of a cut the learning rate now, of a rollback the update that it went back to."""
    reason: str | None = None


class RunStateChanged(Fact, frozen=True, kw_only=True, tag="run_state_changed"):
    """The run is in another state, as reported by what controls it."""

    before: str
    """The state that was left."""
    after: str
    """The state that it is in now, e.g. `running`, `paused`."""
    reason: str | None = None
    command: str | None = None
    """Id of the command that asked for it."""
    by: str | None = None
    """Who, where that is known."""


class CommandApplied(Fact, frozen=True, kw_only=True, tag="command_applied"):
    """A command to a running trainer ended: it was obeyed, or not."""

    command: str
    """Its id."""
    kind: str
    """What it asks for, e.g. `tune`, `pause`."""
    outcome: str
    """`done`, `refused` or `failed`."""
    detail: str | None = None
    """What was done, or why not."""
    changes: dict[str, str] = msgspec.field(default_factory=dict)
    """Of a tune, by hyperparameter: `0.0003 > 0.0001`."""
    by: str | None = None
    """Who asked, where that is known."""
    update: int | None = None
    """The update at which it was obeyed."""


class FindingAcknowledged(Fact, frozen=True, kw_only=True, tag="finding_acknowledged"):
    """An operator has seen a finding; it does not come from the run, and means nothing for its health."""

    finding: str
    """The finding's id."""
    by: str | None = None
    """Who, where that is known."""


class PhaseBegan(Fact, frozen=True, kw_only=True, tag="phase_began"):
    """A phase that is no step of the loop began: an evaluation, a checkpoint, any name of the trainer's."""

    phase: str
    """Name of the phase."""


class PhaseEnded(Fact, frozen=True, kw_only=True, tag="phase_ended"):
    """A phase of the training loop ended; also sent as a span."""

    phase: str
    """Name of the phase."""
    duration_s: float
    """Seconds that it took."""
    update: int | None = None
    trace_id: str | None = None
    """Of its span, 32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""


class LogLine(Fact, frozen=True, kw_only=True, tag="log_line"):
    """A line of log from any program, kept with its fields."""

    trace_id: str | None = None
    """Of the span it was written in, 32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""

    severity: Severity
    message: str
    subsystem: str = "trainer"
    """Who wrote it."""
    env_id: int | None = None
    slot: str | None = None
    seed_id: str | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)


Event: TypeAlias = (
    RunStarted | RunFinished | Measured | Tallied | EpisodeEnded | ActionTaken | SeedStageChanged
    | GateEvaluated | EnvCrashed | EnvRolledBack | EnvsRemoved | NonFiniteSeen | EarlyStopped
    | CurriculumChanged | CheckpointSaved | TrainingRecovered | RunStateChanged | CommandApplied
    | FindingAcknowledged | PhaseBegan | PhaseEnded | LogLine
)  # fmt: skip


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its origin and its number within the origin's epoch; foreign records have none."""

    origin: Origin
    event: Event
    seq: Annotated[int, msgspec.Meta(ge=0)] | None = None
