"""WHAT can happen: frozen facts and the closed union `Event`.

Owns every kind of thing a producer can say. Numbers are one event, `Measured`, for ever; everything
else is a fact in the past tense. A new fact breaks the type check until every `match` handles it.

Rules: `at` is the producer's time in Unix nanoseconds. Absent is `None`, never 0. Validation happens on
construction, so an event that exists is well formed. Must not know OTLP, state or views; loads NumPy only
when a column is made or read as an array.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from overwatch.catalog import Scope, Stage

if TYPE_CHECKING:
    import numpy as np

MAX_ROWS: Final = 1 << 22
"""Most values one column may hold."""

_ITEM_BYTES: Final = {
    "<f8": 8, "<f4": 4, "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1, "<u4": 4, "<u2": 2, "|u1": 1,
}  # fmt: skip


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


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one field for many subjects: little-endian bytes of one dtype.

    With `labels`, the values are indices into them (dictionary coding); -1 then means absent.
    Raises `ValueError` when dtype, length or a label index does not fit.
    """

    dtype: str
    data: bytes
    labels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        size = _ITEM_BYTES.get(self.dtype)
        if size is None:
            known = ", ".join(sorted(_ITEM_BYTES))
            raise ValueError(f"column dtype {self.dtype!r} is not supported; use one of {known}")
        if len(self.data) % size:
            raise ValueError(f"column of {len(self.data)} bytes is not a whole number of {self.dtype} items")
        if len(self.data) // size > MAX_ROWS:
            raise ValueError(f"column of {len(self.data) // size} values is longer than {MAX_ROWS}")
        if self.labels is not None:
            self._check_labels(self.labels)

    def _check_labels(self, labels: tuple[str, ...]) -> None:
        if self.dtype.endswith(("f4", "f8")):
            raise ValueError(f"a column with labels holds integers, not {self.dtype}")
        if not self.data:
            return
        codes = self.array()
        low, high = int(codes.min()), int(codes.max())
        if low < -1 or high >= len(labels):
            raise ValueError(f"label index {low if low < -1 else high} is outside of {len(labels)} labels")

    def __len__(self) -> int:
        return len(self.data) // _ITEM_BYTES[self.dtype]

    @classmethod
    def scalar(cls, value: float) -> "Column":
        """A column of one double; needs no NumPy."""
        return cls(dtype="<f8", data=struct.pack("<d", value))

    @classmethod
    def of(cls, values: "Iterable[float] | np.ndarray") -> "Column":
        """A column of numbers; floats stay float32 or float64, integers keep a supported width."""
        import numpy as np

        array = np.ascontiguousarray(values if isinstance(values, np.ndarray) else list(values))
        if array.ndim != 1:
            raise ValueError(f"a column has one dimension, this array has shape {array.shape}")
        if array.dtype == np.bool_:
            array = array.astype(np.uint8)
        code = array.dtype.newbyteorder("<").str
        if code not in _ITEM_BYTES:
            array = array.astype("<f8" if array.dtype.kind == "f" else "<i8")
            code = array.dtype.str
        return cls(dtype=code, data=array.astype(code, copy=False).tobytes())

    @classmethod
    def of_labels(cls, values: Sequence[str | None]) -> "Column":
        """A dictionary-coded column of words; `None` becomes -1."""
        labels = tuple(dict.fromkeys(value for value in values if value is not None))
        codes = {label: code for code, label in enumerate(labels)}
        numbers = [-1 if value is None else codes[value] for value in values]
        return cls(dtype="<i4", data=struct.pack(f"<{len(numbers)}i", *numbers), labels=labels)

    def array(self) -> "np.ndarray":
        """The values (or label indices) as a read-only NumPy array of shape (n,)."""
        import numpy as np

        return np.frombuffer(self.data, dtype=self.dtype)

    def words(self) -> list[str | None]:
        """The values of a dictionary-coded column; raises `ValueError` on a column of numbers."""
        if self.labels is None:
            raise ValueError(f"a {self.dtype} column without labels has no words")
        labels = self.labels
        return [None if code < 0 else labels[code] for code in self.array().tolist()]

    def first(self) -> float:
        """The first value as a float; needs no NumPy for a column made by `scalar`."""
        if self.dtype == "<f8":
            return float(struct.unpack_from("<d", self.data)[0])
        return float(self.array()[0])


class _Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What all events have: the producer's time."""

    at: int
    """Producer's Unix time in nanoseconds."""


class MetricInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run's own task metric."""

    name: str
    unit: str = "1"
    higher_is_better: bool = True


class RunStarted(_Fact, frozen=True, kw_only=True, tag="run_started"):
    """A trainer began; it says what it is."""

    task: str | None = None
    algo: str | None = None
    reward_mode: str | None = None
    n_envs: int | None = None
    devices: tuple[str, ...] = ()
    """Lane ids: a GPU's UUID, `cpu`, or a name of the trainer's own."""
    lanes: dict[str, str] = {}
    """What the trainer calls a lane, by lane id: `cuda:0`; lanes that are called by their id are left out."""
    slots: tuple[str, ...] = ()
    """Slot names in the run's order; empty when the run has none."""
    embargo: int | None = None
    """Steps for which a slot stays embargoed after a prune; absent where the run has no such rule."""
    blueprints: dict[str, str] = {}
    """Blueprint id to its two-letter code."""
    metric: MetricInfo | None = None
    preset: str = "ppo"
    updates: int | None = None
    """Planned number of updates."""
    batches: int | None = None
    git_sha: str | None = None
    dirty: bool | None = None
    node: str | None = None
    amp: str | None = None
    compile: bool | None = None
    ddp: int | None = None
    world_size: int | None = None
    """Ranks of the launch."""
    attempt: int | None = None
    """How often the launcher had started the run before."""
    group: str | None = None
    """The arm of a comparison that the run belongs to."""
    env_offset: int = 0
    """What was added to this rank's own env numbers to make env ids."""
    config: dict[str, str] = {}


class RunFinished(_Fact, frozen=True, kw_only=True, tag="run_finished"):
    """A trainer ended and said so."""

    outcome: str
    """`completed`, `failed` or `interrupted`."""
    reason: str | None = None


class Conflated(msgspec.Struct, frozen=True, kw_only=True):
    """What several measurements were before they became one, so that no breach is lost between them."""

    n: int
    """Measurements; the values told are those of the last."""
    low: dict[str, Column] = {}
    """Smallest finite values, of the rows that have limits."""
    high: dict[str, Column] = {}
    warnings: dict[str, int] = {}
    """Values beyond the warning limit, not the critical one, by name; relative limits are not counted."""
    criticals: dict[str, int] = {}


class Measured(_Fact, frozen=True, kw_only=True, tag="measured"):
    """Numbers of one scope at one moment.

    `keys` name the subjects (`env_id`, `slot`, `gpu_id`), one entry a row; empty where the scope has one
    subject. `values` maps catalogue names (or custom ones) to columns of the same length.
    """

    scope: Scope
    values: dict[str, Column]
    keys: dict[str, Column] = {}
    index: int | None = None
    """Number of the update (scope policy) or of the env step (scopes env and slot)."""
    conflated: Conflated | None = None
    """Present when this stands for several measurements."""

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in (*self.keys.items(), *self.values.items())}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name}={length}" for name, length in lengths.items())
            raise ValueError(f"columns of one measurement differ in length: {said}")
        if self.scope in _KEYED and not self.keys:
            raise ValueError(f"a measurement of scope {self.scope.value} needs keys: {_KEYED[self.scope]}")


_KEYED: Final = {Scope.ENV: "env_id", Scope.SLOT: "env_id and slot", Scope.GPU: "gpu_id"}


class EpisodeEnded(_Fact, frozen=True, kw_only=True, tag="episode_ended"):
    """Episodes that ended at one step; one row an env, columns of the same length."""

    env_id: Column
    episode_return: Column
    length: Column | None = None
    metric: Column | None = None


class ActionTaken(_Fact, frozen=True, kw_only=True, tag="action_taken"):
    """What the policy did at one step; one row an env."""

    env_id: Column
    op: Column
    """Dictionary-coded operation names."""
    slot: Column | None = None
    """Dictionary-coded slot names; absent where the operation has none."""
    blueprint: Column | None = None
    step: int | None = None


class SeedStageChanged(_Fact, frozen=True, kw_only=True, tag="seed_stage_changed"):
    """A seed moved from one stage to the next."""

    env_id: int
    slot: str
    seed_id: str
    before: Stage
    after: Stage
    blueprint: str | None = None
    alpha: float | None = None
    age: int | None = None
    """Steps spent in the stage that was left."""
    reason: str | None = None
    fields: dict[str, str] = {}


class GateEvaluated(_Fact, frozen=True, kw_only=True, tag="gate_evaluated"):
    """A gate of the lifecycle was checked."""

    env_id: int
    slot: str
    seed_id: str
    gate: str
    passed: bool
    score: float | None = None
    checks_passed: tuple[str, ...] = ()
    checks_failed: tuple[str, ...] = ()
    message: str | None = None


class EnvCrashed(_Fact, frozen=True, kw_only=True, tag="env_crashed"):
    """An environment died; it counts as crashed until it reports numbers again."""

    env_id: int
    error: str
    step: int | None = None
    traceback: str | None = None


class NonFiniteSeen(_Fact, frozen=True, kw_only=True, tag="non_finite_seen"):
    """A value that must be finite was not."""

    scope: Scope
    metric: str
    kind: str
    """`nan` or `inf`."""
    count: int = 1
    env_ids: tuple[int, ...] = ()
    """At most sixteen of the envs concerned."""


class EarlyStopped(_Fact, frozen=True, kw_only=True, tag="early_stopped"):
    """PPO stopped an update before its last epoch."""

    update: int
    epoch: int
    kl_divergence: float
    target: float
    minibatches_skipped: int


class CurriculumChanged(_Fact, frozen=True, kw_only=True, tag="curriculum_changed"):
    """The task became another one: what episodes earn before and after does not compare."""

    name: str
    """What changed, e.g. `level`."""
    before: str | None = None
    after: str | None = None
    env_id: Column | None = None
    """Envs concerned, one row an env; all of them when absent."""


class CheckpointSaved(_Fact, frozen=True, kw_only=True, tag="checkpoint_saved"):
    """The trainer wrote down what it can go on from."""

    path: str
    update: int | None = None
    """Updates that it holds."""
    size_bytes: int | None = None
    duration_s: float | None = None
    """Seconds that saving took."""


class PhaseEnded(_Fact, frozen=True, kw_only=True, tag="phase_ended"):
    """A phase of the training loop ended; also sent as a span."""

    phase: str
    duration_s: float
    update: int | None = None


class LogLine(_Fact, frozen=True, kw_only=True, tag="log_line"):
    """A line of log from any program, kept with its fields."""

    trace_id: str | None = None
    """Of the span it was written in, 32 hex digits."""
    span_id: str | None = None
    """16 hex digits."""

    severity: Severity
    message: str
    subsystem: str = "trainer"
    env_id: int | None = None
    slot: str | None = None
    seed_id: str | None = None
    fields: dict[str, str] = {}


Event: TypeAlias = (
    RunStarted | RunFinished | Measured | EpisodeEnded | ActionTaken | SeedStageChanged | GateEvaluated
    | EnvCrashed | NonFiniteSeen | EarlyStopped | CurriculumChanged | CheckpointSaved | PhaseEnded | LogLine
)  # fmt: skip


PENDING: Final = "pending-"
"""How the stand-in for a run id begins, while a rank waits for rank 0 to say which run they are."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: one process of one attempt of one run."""

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


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its origin and its number within the origin's epoch; foreign records have none."""

    origin: Origin
    event: Event
    seq: Annotated[int, msgspec.Meta(ge=0)] | None = None


def scalars(values: Mapping[str, float]) -> dict[str, Column]:
    """Columns of one value each, as `run.update` sends them."""
    return {name: Column.scalar(value) for name, value in values.items()}
