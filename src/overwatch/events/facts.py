"""Facts in the past tense that happen while a run goes on."""

import msgspec

from overwatch.catalog import Scope, Stage
from overwatch.events.column import Column
from overwatch.events.fact import Fact, Severity


class EpisodeEnded(Fact, frozen=True, kw_only=True, tag="episode_ended"):
    """Episodes that ended at one step; one row an env, columns of the same length."""

    env_id: Column
    episode_return: Column
    length: Column | None = None
    metric: Column | None = None
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
    """What the gate says, in words."""


class EnvCrashed(Fact, frozen=True, kw_only=True, tag="env_crashed"):
    """An environment died; it counts as crashed until it reports numbers again."""

    env_id: int
    error: str = ""
    """The error, in one line; empty where it is not known."""
    step: int | None = None
    traceback: str | None = None
    """Where it came from."""


class EnvsRemoved(Fact, frozen=True, kw_only=True, tag="envs_removed"):
    """Envs that are no more, one row an env; one that speaks again later is another env of the same id."""

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
    """Who controls the run says that it is in another state."""

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
    """An operator has seen a finding; it is no word of the run's own, and says nothing of its health."""

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
