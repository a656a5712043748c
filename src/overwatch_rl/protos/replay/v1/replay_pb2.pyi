# Made by `make generate` from overwatch_rl/protos/replay/v1/replay.proto; edit that.
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_UNSPECIFIED: _ClassVar[End]
    END_TERMINATED: _ClassVar[End]
    END_TRUNCATED: _ClassVar[End]
    END_CUT: _ClassVar[End]
END_UNSPECIFIED: End
END_TERMINATED: End
END_TRUNCATED: End
END_CUT: End

class Transition(_message.Message):
    __slots__ = ("id", "env_id", "episode_id", "step_number", "state", "action", "next_state", "observation", "next_observation", "reward", "done", "priority", "timestamp", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    NEXT_STATE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    id: str
    env_id: str
    episode_id: str
    step_number: int
    state: bytes
    action: bytes
    next_state: bytes
    observation: bytes
    next_observation: bytes
    reward: float
    done: bool
    priority: float
    timestamp: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., env_id: _Optional[str] = ..., episode_id: _Optional[str] = ..., step_number: _Optional[int] = ..., state: _Optional[bytes] = ..., action: _Optional[bytes] = ..., next_state: _Optional[bytes] = ..., observation: _Optional[bytes] = ..., next_observation: _Optional[bytes] = ..., reward: _Optional[float] = ..., done: _Optional[bool] = ..., priority: _Optional[float] = ..., timestamp: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StoreTransitionRequest(_message.Message):
    __slots__ = ("transition", "table")
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    transition: Transition
    table: str
    def __init__(self, transition: _Optional[_Union[Transition, _Mapping]] = ..., table: _Optional[str] = ...) -> None: ...

class StoreTransitionResponse(_message.Message):
    __slots__ = ("stored", "durable")
    STORED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    stored: int
    durable: bool
    def __init__(self, stored: _Optional[int] = ..., durable: _Optional[bool] = ...) -> None: ...

class StoreBatchRequest(_message.Message):
    __slots__ = ("transitions", "table")
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    transitions: _containers.RepeatedCompositeFieldContainer[Transition]
    table: str
    def __init__(self, transitions: _Optional[_Iterable[_Union[Transition, _Mapping]]] = ..., table: _Optional[str] = ...) -> None: ...

class StoreBatchResponse(_message.Message):
    __slots__ = ("stored", "durable")
    STORED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    stored: int
    durable: bool
    def __init__(self, stored: _Optional[int] = ..., durable: _Optional[bool] = ...) -> None: ...

class SampleConfig(_message.Message):
    __slots__ = ("batch_size", "env_id", "prioritized", "priority_alpha", "min_timestamp", "max_timestamp", "importance_exponent")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITIZED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_ALPHA_FIELD_NUMBER: _ClassVar[int]
    MIN_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    env_id: str
    prioritized: bool
    priority_alpha: float
    min_timestamp: int
    max_timestamp: int
    importance_exponent: float
    def __init__(self, batch_size: _Optional[int] = ..., env_id: _Optional[str] = ..., prioritized: _Optional[bool] = ..., priority_alpha: _Optional[float] = ..., min_timestamp: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., importance_exponent: _Optional[float] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("config", "table", "columnar", "writer", "number", "priorities")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMNAR_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    config: SampleConfig
    table: str
    columnar: bool
    writer: str
    number: int
    priorities: UpdatePrioritiesRequest
    def __init__(self, config: _Optional[_Union[SampleConfig, _Mapping]] = ..., table: _Optional[str] = ..., columnar: _Optional[bool] = ..., writer: _Optional[str] = ..., number: _Optional[int] = ..., priorities: _Optional[_Union[UpdatePrioritiesRequest, _Mapping]] = ...) -> None: ...

class SampleResponse(_message.Message):
    __slots__ = ("transitions", "total_available", "weights", "rows", "encoding_hash", "accepted")
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_HASH_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    transitions: _containers.RepeatedCompositeFieldContainer[Transition]
    total_available: int
    weights: _containers.RepeatedScalarFieldContainer[float]
    rows: Rows
    encoding_hash: str
    accepted: int
    def __init__(self, transitions: _Optional[_Iterable[_Union[Transition, _Mapping]]] = ..., total_available: _Optional[int] = ..., weights: _Optional[_Iterable[float]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., encoding_hash: _Optional[str] = ..., accepted: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("count", "slots", "generations", "weights", "lineages", "versions", "columns")
    class ColumnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LINEAGES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    count: int
    slots: bytes
    generations: bytes
    weights: bytes
    lineages: bytes
    versions: bytes
    columns: _containers.ScalarMap[str, bytes]
    def __init__(self, count: _Optional[int] = ..., slots: _Optional[bytes] = ..., generations: _Optional[bytes] = ..., weights: _Optional[bytes] = ..., lineages: _Optional[bytes] = ..., versions: _Optional[bytes] = ..., columns: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("total_transitions", "total_episodes", "transitions_by_env", "oldest_timestamp", "newest_timestamp", "storage_bytes", "tables")
    class TransitionsByEnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOTAL_TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_EPISODES_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_BY_ENV_FIELD_NUMBER: _ClassVar[int]
    OLDEST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    NEWEST_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    total_transitions: int
    total_episodes: int
    transitions_by_env: _containers.ScalarMap[str, int]
    oldest_timestamp: int
    newest_timestamp: int
    storage_bytes: int
    tables: _containers.RepeatedCompositeFieldContainer[TableStats]
    def __init__(self, total_transitions: _Optional[int] = ..., total_episodes: _Optional[int] = ..., transitions_by_env: _Optional[_Mapping[str, int]] = ..., oldest_timestamp: _Optional[int] = ..., newest_timestamp: _Optional[int] = ..., storage_bytes: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[TableStats, _Mapping]]] = ...) -> None: ...

class TableStats(_message.Message):
    __slots__ = ("name", "kind", "items", "steps", "bytes", "accepted", "queued", "leased", "acknowledged", "removed", "sampled", "redelivered", "late", "leases", "is_full", "most_items", "most_bytes")
    class RemovedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_FIELD_NUMBER: _ClassVar[int]
    MOST_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    items: int
    steps: int
    bytes: int
    accepted: int
    queued: int
    leased: int
    acknowledged: int
    removed: _containers.ScalarMap[str, int]
    sampled: int
    redelivered: int
    late: _containers.ScalarMap[str, int]
    leases: int
    is_full: bool
    most_items: int
    most_bytes: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., items: _Optional[int] = ..., steps: _Optional[int] = ..., bytes: _Optional[int] = ..., accepted: _Optional[int] = ..., queued: _Optional[int] = ..., leased: _Optional[int] = ..., acknowledged: _Optional[int] = ..., removed: _Optional[_Mapping[str, int]] = ..., sampled: _Optional[int] = ..., redelivered: _Optional[int] = ..., late: _Optional[_Mapping[str, int]] = ..., leases: _Optional[int] = ..., is_full: _Optional[bool] = ..., most_items: _Optional[int] = ..., most_bytes: _Optional[int] = ...) -> None: ...

class UpdatePrioritiesRequest(_message.Message):
    __slots__ = ("ids", "new_priorities", "table", "slots", "generations")
    IDS_FIELD_NUMBER: _ClassVar[int]
    NEW_PRIORITIES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    new_priorities: _containers.RepeatedScalarFieldContainer[float]
    table: str
    slots: bytes
    generations: bytes
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., new_priorities: _Optional[_Iterable[float]] = ..., table: _Optional[str] = ..., slots: _Optional[bytes] = ..., generations: _Optional[bytes] = ...) -> None: ...

class UpdatePrioritiesResponse(_message.Message):
    __slots__ = ("updated", "late")
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    updated: int
    late: int
    def __init__(self, updated: _Optional[int] = ..., late: _Optional[int] = ...) -> None: ...

class ClearRequest(_message.Message):
    __slots__ = ("env_id", "before_timestamp", "keep_last", "table", "older_than", "beyond")
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    env_id: str
    before_timestamp: int
    keep_last: int
    table: str
    older_than: Version
    beyond: Version
    def __init__(self, env_id: _Optional[str] = ..., before_timestamp: _Optional[int] = ..., keep_last: _Optional[int] = ..., table: _Optional[str] = ..., older_than: _Optional[_Union[Version, _Mapping]] = ..., beyond: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class ClearResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: int
    def __init__(self, removed: _Optional[int] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("lineage", "number")
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    lineage: int
    number: int
    def __init__(self, lineage: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "dtype", "shape", "per_chunk")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    PER_CHUNK_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    per_chunk: bool
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., per_chunk: _Optional[bool] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    def __init__(self, columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ...) -> None: ...

class DeclareRequest(_message.Message):
    __slots__ = ("table", "encoding")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    table: str
    encoding: Encoding
    def __init__(self, table: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, _Mapping]] = ...) -> None: ...

class DeclareResponse(_message.Message):
    __slots__ = ("encoding_hash",)
    ENCODING_HASH_FIELD_NUMBER: _ClassVar[int]
    encoding_hash: str
    def __init__(self, encoding_hash: _Optional[str] = ...) -> None: ...

class GetEncodingRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class GetEncodingResponse(_message.Message):
    __slots__ = ("encoding", "encoding_hash", "kind")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    ENCODING_HASH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    encoding_hash: str
    kind: str
    def __init__(self, encoding: _Optional[_Union[Encoding, _Mapping]] = ..., encoding_hash: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("run", "env", "episode", "first_step", "steps", "lineage", "version", "end", "columns")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    run: str
    env: str
    episode: int
    first_step: int
    steps: int
    lineage: int
    version: int
    end: End
    columns: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, run: _Optional[str] = ..., env: _Optional[str] = ..., episode: _Optional[int] = ..., first_step: _Optional[int] = ..., steps: _Optional[int] = ..., lineage: _Optional[int] = ..., version: _Optional[int] = ..., end: _Optional[_Union[End, str]] = ..., columns: _Optional[_Iterable[bytes]] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("table", "encoding_hash", "writer", "number", "chunks")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_HASH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    table: str
    encoding_hash: str
    writer: str
    number: int
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    def __init__(self, table: _Optional[str] = ..., encoding_hash: _Optional[str] = ..., writer: _Optional[str] = ..., number: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("items", "steps", "is_repeat", "durable")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    items: int
    steps: int
    is_repeat: bool
    durable: bool
    def __init__(self, items: _Optional[int] = ..., steps: _Optional[int] = ..., is_repeat: _Optional[bool] = ..., durable: _Optional[bool] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("table", "learner", "steps", "after")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    table: str
    learner: str
    steps: int
    after: int
    def __init__(self, table: _Optional[str] = ..., learner: _Optional[str] = ..., steps: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseOf
    def __init__(self, lease: _Optional[_Union[LeaseOf, _Mapping]] = ...) -> None: ...

class LeaseOf(_message.Message):
    __slots__ = ("number", "deadline", "items", "encoding_hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    deadline: int
    items: _containers.RepeatedCompositeFieldContainer[Leased]
    encoding_hash: str
    def __init__(self, number: _Optional[int] = ..., deadline: _Optional[int] = ..., items: _Optional[_Iterable[_Union[Leased, _Mapping]]] = ..., encoding_hash: _Optional[str] = ...) -> None: ...

class Leased(_message.Message):
    __slots__ = ("slot", "generation", "is_redelivered", "timestamp", "chunk")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IS_REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    slot: int
    generation: int
    is_redelivered: bool
    timestamp: int
    chunk: Chunk
    def __init__(self, slot: _Optional[int] = ..., generation: _Optional[int] = ..., is_redelivered: _Optional[bool] = ..., timestamp: _Optional[int] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("table", "learner", "upto")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    table: str
    learner: str
    upto: int
    def __init__(self, table: _Optional[str] = ..., learner: _Optional[str] = ..., upto: _Optional[int] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: int
    def __init__(self, items: _Optional[int] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("table", "learner")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    table: str
    learner: str
    def __init__(self, table: _Optional[str] = ..., learner: _Optional[str] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: int
    def __init__(self, leases: _Optional[int] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("table", "learner", "cursor")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    table: str
    learner: str
    cursor: int
    def __init__(self, table: _Optional[str] = ..., learner: _Optional[str] = ..., cursor: _Optional[int] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("next_number", "redelivered", "acknowledged", "gap", "is_unknown")
    NEXT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    IS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    next_number: int
    redelivered: int
    acknowledged: int
    gap: int
    is_unknown: bool
    def __init__(self, next_number: _Optional[int] = ..., redelivered: _Optional[int] = ..., acknowledged: _Optional[int] = ..., gap: _Optional[int] = ..., is_unknown: _Optional[bool] = ...) -> None: ...

class SampleStreamRequest(_message.Message):
    __slots__ = ("sample", "lease", "credits")
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    sample: SampleRequest
    lease: LeaseRequest
    credits: int
    def __init__(self, sample: _Optional[_Union[SampleRequest, _Mapping]] = ..., lease: _Optional[_Union[LeaseRequest, _Mapping]] = ..., credits: _Optional[int] = ...) -> None: ...

class SampleStreamResponse(_message.Message):
    __slots__ = ("sample", "lease")
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    sample: SampleResponse
    lease: LeaseOf
    def __init__(self, sample: _Optional[_Union[SampleResponse, _Mapping]] = ..., lease: _Optional[_Union[LeaseOf, _Mapping]] = ...) -> None: ...
