"""What goes over the wire: requests and replies as types, and the bytes of one group.

Owns the field names, which are those of the wire that trainers and environments already speak, and how a
group is kept: the sender's own JSON object, with the optional keys that it left out appended as null, so that
a batch is a concatenation of bytes. Durations are seconds from now, as clocks of two machines differ.
Must not know HTTP, the queue or the disk.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

Count = Annotated[int, Meta(ge=1, le=1 << 40)]
Natural = Annotated[int, Meta(ge=0, le=1 << 62)]
Token = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Weight = Annotated[float, Meta(ge=0.0, le=1e12)]
Name = Annotated[str, Meta(max_length=1024)]
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What every reader and the log can hold."""
Mask = Whole


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /register`: the trainer and its run."""

    wandb_group: Name
    wandb_project: Name
    batch_size: Count
    """Sequences of one batch."""
    max_token_len: Whole
    """Most tokens of a sequence; 0 or less for no limit."""
    checkpoint_dir: Name
    save_checkpoint_interval: Whole
    starting_step: Natural
    num_steps: Whole
    """The step at which training ends; 0 or less for no end."""
    max_staleness: Annotated[int, Meta(ge=0, le=1 << 31)] | None = None
    """Most versions that a group may be old when it is served; the server's own limit where left out."""


class EnvRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /register-env`: one environment."""

    max_token_length: Natural
    desired_name: Name
    weight: Weight | None = 1.0
    group_size: Count
    """Sequences of its usual group."""
    min_batch_allocation: Share | None = None
    """Share of every batch that is kept for this environment while it has groups."""


class EnvIdentifier(msgspec.Struct, frozen=True, kw_only=True):
    """Which environment: the body of `/disconnect-env` and `/status-env`."""

    env_id: Whole


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation; other keys pass through."""

    role: Raw
    content: Raw


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the policy: `lineage` counts resumes, `number` the versions of one lineage."""

    lineage: Natural = 0
    number: Natural


Object = dict[str, Raw]
Rows = list[list[float]] | None | UnsetType


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a group has beside its rows of numbers."""

    messages: list[list[Message]] | UnsetType | None = UNSET
    generation_params: Object | UnsetType | None = UNSET
    overrides: list[Object] | UnsetType | None = UNSET
    group_overrides: Object | UnsetType | None = UNSET
    images: Raw | UnsetType = UNSET
    env_id: Whole | UnsetType | None = UNSET
    version: PolicyVersion | None = None
    """Version of the policy that generated the group; where left out, that of its ticket, or the last one
    that the environment was answered."""
    ticket: Whole | None = None
    """A ticket of `POST /admit`."""


class Scored(Head, frozen=True, kw_only=True, gc=False):
    """One group of sequences: `POST /scored_data`, or an element of `POST /scored_data_list`.

    Of a list with a row a sequence, an empty one means the same as null: published clients send it.
    """

    tokens: Annotated[list[list[Token]], Meta(min_length=1)]
    masks: list[list[Mask]]
    """-100 where a token is not trained on."""
    scores: list[float]
    advantages: Rows = UNSET
    ref_logprobs: Rows = UNSET
    inference_logprobs: Rows = UNSET
    distill_token_ids: list[list[list[Token]]] | UnsetType | None = UNSET
    distill_logprobs: list[list[list[float]]] | UnsetType | None = UNSET


OPTIONAL: Final = (
    "advantages", "ref_logprobs", "messages", "generation_params", "inference_logprobs", "overrides",
    "group_overrides", "images", "env_id", "distill_token_ids", "distill_logprobs",
)  # fmt: skip
"""Keys that a reader of a batch may expect in every group."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /admit`: an environment asks for tickets."""

    env_id: Whole
    groups: Annotated[int, Meta(ge=1, le=4096)] = 1


class VersionMove(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /version`: the trainer states which version of the policy it has."""

    lineage: Natural = 0
    number: Natural
    resumed_from: Natural | None = None
    """Last number of older lineages that a new one descends from; all of them where left out."""


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /lease/{id}/extend`."""

    seconds: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """From now on; the server's own duration where left out."""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /reset`: discards the trainer, all environments and all groups."""

    confirm: Literal["discard everything"]


class Banner(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /`."""

    message: str
    version: str


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer is registered."""

    uuid: int


class EnvRegistered(msgspec.Struct, frozen=True, kw_only=True):
    """The environment is registered."""

    status: Literal["success"] = "success"
    env_id: int
    wandb_name: str
    """Unique: the name that was wished for and a number."""
    checkpoint_dir: str
    starting_step: int
    checkpoint_interval: int
    num_steps: int
    """-1 for no end."""
    version: PolicyVersion
    lease_s: float
    """After so long without a call the environment loses its share until the next one."""
    unreachable: str | None
    """Why groups of its size can never be part of a batch; null where they can."""


class EnvWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer has not asked for its first batch yet: register again after `retry_s`."""

    status: Literal["wait for trainer to start"] = "wait for trainer to start"
    retry_s: float


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """It happened."""

    status: Literal["success"] = "success"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """It did not happen; the HTTP status is 200, which published clients expect."""

    status: Literal["failure"] = "failure"
    error: str


class WandbInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How runs of an experiment tracker are grouped; null before a trainer registers."""

    group: str | None
    project: str | None


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What the trainer takes; -1 before one registers."""

    batch_size: int
    max_token_len: int


Groups = Annotated[list[Raw], Meta(extra_json_schema={"items": {"$ref": "#/components/schemas/Scored"}})]
"""Groups as their senders wrote them."""


Empty = Annotated[list[None], Meta(max_length=0)]


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Beside each group of a batch."""

    id: int
    env_id: int | None
    version: PolicyVersion
    version_source: Literal["stated", "assumed"]
    """Whether the sender stated the version, or the server takes the last one that it answered."""
    age: int
    """Versions between the one that generated it and the trainer's."""
    redelivered: bool
    traceparent: str | None = None
    """The span that brought it, as in W3C Trace Context; absent where it is not recorded."""


Lack = Literal["few", "running", "unreachable", "done"]


class BatchLease(msgspec.Struct, frozen=True, kw_only=True):
    """An explicit lease, to be acknowledged, extended or released within `expires_in_s`."""

    id: int
    expires_in_s: float


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /batch`; published clients read `batch` alone."""

    batch: Groups | None
    """Exactly `batch_size` sequences, or null where there are not so many yet."""
    items: list[BatchItem] = []
    """In the order of `batch`."""
    lease: BatchLease | None = None
    """Null without the header `Overwatch-Lease: 1`."""
    version: PolicyVersion | None = None
    """The trainer's."""
    lack: Lack | None = None
    """Why there is no batch; null where there is one."""
    message: str | None = None
    retry_s: float | None = None


class NoTrainer(msgspec.Struct, frozen=True, kw_only=True):
    """No trainer is registered; the HTTP status is 200, which published clients expect."""

    status: Literal["error"] = "error"
    message: str
    batch: Groups = []


class NoExample(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /latest_example` before the first group: empty rows, which published clients expect."""

    tokens: Empty = []
    masks: Empty = []
    scores: Empty = []
    advantages: Empty = []
    ref_logprobs: Empty = []
    generation_params: Empty = []
    inference_logprobs: Empty = []
    messages: Empty = []
    images: Empty = []


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One group that was not queued."""

    index: int
    """Place in the request."""
    reason: str
    path: str
    """Of the field, e.g. `[1].scores[3]`; empty where it is none."""
    message: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """The group is queued, and safe."""

    status: Literal["received"] = "received"
    id: int


class ReceivedList(msgspec.Struct, frozen=True, kw_only=True):
    """All groups that are not in `refused` are queued, and safe."""

    status: Literal["received"] = "received"
    groups_processed: int
    """Groups that are queued."""
    ids: list[int | None]
    """In the order of the request; null where refused."""
    refused: list[Refusal] = []


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Status 422: at least one group is not queued; sending it again changes nothing."""

    status: Literal["refused"] = "refused"
    error: str
    groups_processed: int
    """Groups of the same request that are queued."""
    ids: list[int | None]
    """In the order of the request; null where refused."""
    refused: list[Refusal]


class Full(msgspec.Struct, frozen=True, kw_only=True):
    """Status 429: nothing of the request is queued; send it again after `retry_s`."""

    status: Literal["full"] = "full"
    error: str
    queue_size: int
    """Groups in the queue."""
    queued_sequences: int
    retry_s: float


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Any other request that cannot be served."""

    error: str
    path: str | None = None
    """Of the field that is wrong."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /status`."""

    current_step: int
    queue_size: int
    """Groups queued, and leased but not acknowledged."""
    queued_sequences: int
    version: PolicyVersion
    permits: int
    """Sequences for which tickets may still be issued."""
    set_aside: int
    """Groups that came back unused too often: their readers may have failed because of them."""
    done: bool
    """Whether training has all that it needs."""


class EnvStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /status-env`; sizes are in groups of the environment's own size."""

    current_step: int
    queue_size: int
    """Groups queued, and leased but not acknowledged, of all environments."""
    unallocated_fraction: float
    self_queue_size: int
    max_group_size: int
    env_weight: float
    queued_sequences: int
    version: PolicyVersion
    lease_s: float
    unreachable: str | None
    done: bool


class Tickets(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions to generate one group each."""

    tickets: list[int]
    version: PolicyVersion
    """Of the policy to generate with."""
    expires_in_s: float | None
    """Null where there are none."""
    retry_s: float
    """When to ask again where there are fewer than asked for."""
    done: bool


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer's version."""

    version: PolicyVersion


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease after the call."""

    id: int
    expires_in_s: float | None
    """Null where it is over."""
    ended: str | None
    """How it ended: acknowledged, expired, released, broken, registered or reset; null while it is out."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /healthz`: 503 where nothing can be written any more."""

    status: Literal["ok", "failed"]
    error: str | None = None
