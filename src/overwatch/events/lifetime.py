"""How a run's life is told: a trainer that began says what it is, one that ends says how."""

import msgspec

from overwatch.catalog.presets import preset_for
from overwatch.events.fact import Fact


class MetricInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run's own task metric."""

    name: str
    unit: str = "1"
    higher_is_better: bool = True


class RunStarted(Fact, frozen=True, kw_only=True, tag="run_started"):
    """A trainer began; it says what it is."""

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
    def judged_by(self) -> str:
        """Whose limits judge the run."""
        return self.preset or preset_for(self.algo)


class RunFinished(Fact, frozen=True, kw_only=True, tag="run_finished"):
    """A trainer ended: by itself, or as its exporter saw its process go.

    A second one of the same producer puts the first right.
    """

    outcome: str
    """`completed`, `failed`, `interrupted`; `lost` where a process was killed or went in an unknown way."""
    reason: str | None = None
    """Why, in words: an exception, `exit status 3`, `trainer killed by signal 9 (SIGKILL)`."""
