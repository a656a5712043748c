"""The bodies of the orchestrator's API, as types; the document of the API is made from them.

Rules: a request with a field that is not known is refused, so that a misspelt one is not lost; absent is
null.
Must not know routes or what is decided.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from overwatch_rl.orchestrator.commands import Command, Done, Identifier, Issued, Kind, Text
from overwatch_rl.orchestrator.states import Health, State

PREFIX: Final = "/api/v1"
"""Of all paths."""

Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-1.7e308, le=1.7e308)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
VersionText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{3,10}-[0-9]{8,18}\Z")]
"""Lineage and number of weights or a checkpoint: `001-00000010`."""
Key: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""An Ed25519 public key: 32 bytes as hex."""
Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Word: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Uri: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=2048, pattern=r"^[^\x00]*\Z")]

Status: TypeAlias = Literal["running", "paused", "terminating", "errored", "completed", "terminated"]
"""What a learner is doing; `errored`, `completed` and `terminated` are its last words."""


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that is sent."""


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A body that is answered."""


class RunRequest(_Request, frozen=True, kw_only=True):
    """A run to be."""

    run_id: Identifier | None = None
    """Made up without."""
    experiment: Text | None = None
    config: dict[str, Any] = {}
    """What the learner and the actors are configured with."""
    seed_base: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0
    weights_public_key: Key | None = None


class Heartbeat(_Request, frozen=True, kw_only=True):
    """Where a learner is."""

    run_id: Identifier
    status: Status
    step: Count
    """Env steps trained on."""
    lineage: Count = 0
    """The learner's life: one more after each resume."""
    samples_per_sec: float | None = None
    loss: float | None = None
    checkpoint_version: VersionText | None = None
    """The newest checkpoint that is written."""
    queued_commands: Count = 0
    """Commands that the learner has and did not obey yet."""
    notes: Text | None = None


class Beaten(_Reply, frozen=True, kw_only=True):
    """A heartbeat was accepted."""

    state: State
    commands_waiting: int
    """Commands that are not acknowledged."""
    interval_s: float
    """The least time to the next heartbeat."""


class RunRecord(_Reply, frozen=True, kw_only=True):
    """What is known of a run."""

    run_id: str
    experiment: str | None
    config: dict[str, Any]
    seed_base: int
    weights_public_key: str | None
    """What the signatures of this run's weights are verified with."""
    state: State
    health: Health | None
    """`null` where no learner is awaited, or not long enough to know."""
    silence_s: float | None
    """Since the last heartbeat."""
    lineage: int | None
    """Of the newest life of its learner; `null` before the first heartbeat."""
    step: int | None
    checkpoint_version: str | None
    tuned: dict[str, float]
    """Hyperparameters that commands have set, as they are now."""
    commands_waiting: int
    heartbeat: Heartbeat | None
    """The last one."""
    created_at: datetime
    heartbeat_at: datetime | None


class Runs(_Reply, frozen=True, kw_only=True):
    """Runs, the newest first."""

    runs: list[RunRecord]


class CommandRequest(_Request, frozen=True, kw_only=True):
    """A command to a run."""

    command: Command
    id: Identifier | None = None
    """Made up without; the same id again is the same command."""


CommandStatus: TypeAlias = Literal["queued", "delivered", "done", "refused", "failed", "superseded"]


class CommandRecord(_Reply, frozen=True, kw_only=True):
    """What became of a command."""

    id: str
    kind: Kind
    command: Command
    status: CommandStatus
    """`superseded`: a terminate came before it was delivered."""
    issued_by: str
    issued_at: datetime
    delivered_at: datetime | None = None
    deliveries: int = 0
    acknowledged_at: datetime | None = None
    done: Done | None = None


class Commands(_Reply, frozen=True, kw_only=True):
    """Commands of a run, the oldest first."""

    commands: list[CommandRecord]


class Next(_Reply, frozen=True, kw_only=True):
    """The command in force, `null` where there is none."""

    command: Issued | None


class ReasonRequest(_Request, frozen=True, kw_only=True):
    """Why a run is paused, resumed or terminated."""

    reason: Text | None = None


class TuneRequest(_Request, frozen=True, kw_only=True):
    """Hyperparameters to their new values."""

    values: Annotated[dict[str, float], msgspec.Meta(min_length=1, max_length=16)]


class KeyRequest(_Request, frozen=True, kw_only=True):
    """The public key of a run's weights."""

    weights_public_key: Key


class ArtifactRequest(_Request, frozen=True, kw_only=True):
    """Something that a run has written."""

    kind: Word
    """`checkpoint`, `weights`, ..."""
    version: VersionText
    uri: Uri
    sha256: Digest | None = None
    """Of its manifest."""
    details: dict[str, Any] = {}


class ArtifactRecord(_Reply, frozen=True, kw_only=True):
    """An artifact that was registered."""

    kind: str
    version: str
    uri: str
    sha256: str | None
    details: dict[str, Any]
    registered_at: datetime


class ListedArtifact(_Reply, frozen=True, kw_only=True):
    """An artifact, with what was found of it."""

    kind: str
    version: str
    uri: str
    sha256: str | None
    details: dict[str, Any]
    registered_at: datetime
    mean_return: float | None
    """Of the newest evaluation of its version; `null` before one was posted."""


class Artifacts(_Reply, frozen=True, kw_only=True):
    """Artifacts of a run, the oldest first."""

    artifacts: list[ListedArtifact]


class EvaluationRequest(_Request, frozen=True, kw_only=True):
    """How well a version did."""

    version: VersionText
    mean_return: Finite
    episodes: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    details: dict[str, Any] = {}


class EvaluationRecord(_Reply, frozen=True, kw_only=True):
    """An evaluation that was posted."""

    id: int
    version: str
    mean_return: float
    episodes: int
    details: dict[str, Any]
    posted_at: datetime


class Evaluations(_Reply, frozen=True, kw_only=True):
    """Evaluations of a run, the oldest first."""

    evaluations: list[EvaluationRecord]


class TransitionRecord(_Reply, frozen=True, kw_only=True):
    """One move of a run."""

    before: State
    after: State
    cause: str
    """`heartbeat`, or `command` with its id."""
    lineage: int | None
    at: datetime


class Transitions(_Reply, frozen=True, kw_only=True):
    """Moves of a run, the oldest first."""

    transitions: list[TransitionRecord]


class AuditRecord(_Reply, frozen=True, kw_only=True):
    """Something that was asked of a run, with its sender, and how it was answered."""

    id: int
    at: datetime
    role: str
    action: str
    details: dict[str, Any]


class Audit(_Reply, frozen=True, kw_only=True):
    """The trail of a run, the oldest first."""

    audit: list[AuditRecord]


class RunHealth(_Reply, frozen=True, kw_only=True):
    """How it is with a run."""

    state: State
    health: Health | None
    silence_s: float | None
    stale_after_s: float
    unresponsive_after_s: float


class ServerHealth(_Reply, frozen=True, kw_only=True):
    """Whether the server can go on."""

    status: Literal["ok", "failed"]
    error: str | None = None


class Problem(_Reply, frozen=True, kw_only=True):
    """Why a request was refused."""

    error: str
    path: str | None = None
    """The field that is wrong."""
