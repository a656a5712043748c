"""What goes over the wire: requests and replies as types, and the bytes of one group.

Owns the field names, which are those of the wire that trainers and environments already speak, and how a group
is kept: the sender's own JSON object, with the optional keys that it left out appended as null, so that a batch
is a concatenation of bytes. Must not know HTTP, the queue or the disk.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

Count = Annotated[int, Meta(ge=1, le=1 << 40)]
Natural = Annotated[int, Meta(ge=0, le=1 << 62)]
Token = Annotated[int, Meta(ge=0, lt=1 << 31)]
Mask = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Weight = Annotated[float, Meta(ge=0.0, le=1e12)]
Name = Annotated[str, Meta(max_length=1024)]


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /register`: the trainer and its run."""

    wandb_group: Name
    wandb_project: Name
    batch_size: Count
    """Sequences of one batch."""
    max_token_len: int
    """Most tokens of a sequence; 0 or less for no limit."""
    checkpoint_dir: Name
    save_checkpoint_interval: int
    starting_step: Natural
    num_steps: int


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

    env_id: int


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation; other keys pass through."""

    role: Raw
    content: Raw


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the policy: `lineage` counts resumes, `number` the versions of one lineage."""

    lineage: Natural = 0
    number: Natural


Object = dict[str, Raw]
Rows = list[list[float]] | None | UnsetType


class Scored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One group of sequences: `POST /scored_data`, or an element of `POST /scored_data_list`.

    Of a list with a row a sequence, an empty one means the same as null: published clients send it.
    """

    tokens: Annotated[list[list[Token]], Meta(min_length=1)]
    masks: list[list[Mask]]
    """-100 where a token is not trained on."""
    scores: list[float]
    advantages: Rows = UNSET
    ref_logprobs: Rows = UNSET
    messages: list[list[Message]] | None | UnsetType = UNSET
    generation_params: Object | None | UnsetType = UNSET
    inference_logprobs: Rows = UNSET
    overrides: list[Object] | None | UnsetType = UNSET
    group_overrides: Object | None | UnsetType = UNSET
    images: Raw | UnsetType = UNSET
    env_id: int | None | UnsetType = UNSET
    distill_token_ids: list[list[list[Token]]] | None | UnsetType = UNSET
    distill_logprobs: list[list[list[float]]] | None | UnsetType = UNSET
    version: Version | None = None
    """Version of the policy that generated the group; that of its ticket, or the last one that the environment
    was answered, where left out."""
    ticket: str | None = None
    """A ticket of `POST /admit`."""


OPTIONAL: Final = (
    "advantages", "ref_logprobs", "messages", "generation_params", "inference_logprobs", "overrides",
    "group_overrides", "images", "env_id", "distill_token_ids", "distill_logprobs",
)  # fmt: skip
"""Keys that a reader of a batch may expect in every group."""


def payload(raw: bytes, group: Scored) -> bytes:
    """The bytes of a group as they are kept: the sender's object and a null for each optional key it lacks."""
    absent = b"".join(b',"%s":null' % name.encode() for name in OPTIONAL if getattr(group, name) is UNSET)
    return raw.rstrip()[:-1].rstrip() + absent + b"}" if absent else raw


def batch(payloads: Iterable[bytes], items: bytes, lease: bytes) -> bytes:
    """The reply to `GET /batch` that has one; `items` and `lease` are encoded."""
    return b'{"batch":[%s],"items":%s,"lease":%s}' % (b",".join(payloads), items, lease)
