# Made by `make generate` from overwatch_rl/protos/weights/v1/weights.proto; edit that.
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WeightsBlob(_message.Message):
    __slots__ = ("run_id", "step", "checksum", "artifact_uri", "inline_payload", "published_at_ns", "lineage", "manifest", "public_key", "delta")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_URI_FIELD_NUMBER: _ClassVar[int]
    INLINE_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step: int
    checksum: str
    artifact_uri: str
    inline_payload: bytes
    published_at_ns: int
    lineage: int
    manifest: bytes
    public_key: str
    delta: bytes
    def __init__(self, run_id: _Optional[str] = ..., step: _Optional[int] = ..., checksum: _Optional[str] = ..., artifact_uri: _Optional[str] = ..., inline_payload: _Optional[bytes] = ..., published_at_ns: _Optional[int] = ..., lineage: _Optional[int] = ..., manifest: _Optional[bytes] = ..., public_key: _Optional[str] = ..., delta: _Optional[bytes] = ...) -> None: ...

class GetCurrentRequest(_message.Message):
    __slots__ = ("with_payload", "run_id")
    WITH_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    with_payload: bool
    run_id: str
    def __init__(self, with_payload: _Optional[bool] = ..., run_id: _Optional[str] = ...) -> None: ...

class StreamWeightsRequest(_message.Message):
    __slots__ = ("after", "with_payload", "run_id")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITH_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    after: str
    with_payload: bool
    run_id: str
    def __init__(self, after: _Optional[str] = ..., with_payload: _Optional[bool] = ..., run_id: _Optional[str] = ...) -> None: ...

class GetArtifactRequest(_message.Message):
    __slots__ = ("version", "run_id", "encoding")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    version: str
    run_id: str
    encoding: str
    def __init__(self, version: _Optional[str] = ..., run_id: _Optional[str] = ..., encoding: _Optional[str] = ...) -> None: ...

class GetArtifactResponse(_message.Message):
    __slots__ = ("artifact",)
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    artifact: bytes
    def __init__(self, artifact: _Optional[bytes] = ...) -> None: ...

class PublishWeightsResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...
