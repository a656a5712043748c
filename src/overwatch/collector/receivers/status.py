"""`google.rpc.Status` bodies for refusals, in protobuf or JSON, with what a sender may act on.

Must not know transports.
"""

from enum import IntEnum

import msgspec
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]


class Code(IntEnum):
    """Canonical codes that this collector answers with."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def protobuf(code: Code, message: str, retry_after_s: int | None = None) -> bytes:
    """A status as protobuf; with `RetryInfo` where the sender should come back."""
    status = status_pb2.Status(code=int(code), message=message)
    detail = AnyMessage()
    if retry_after_s is not None:
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_after_s)))
        status.details.append(detail)
    elif code is Code.INVALID_ARGUMENT:
        violation = error_details_pb2.BadRequest.FieldViolation(field="body", description=message)
        detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        status.details.append(detail)
    return bytes(status.SerializeToString())


def retry_info(retry_after_s: int) -> bytes:
    """A bare `RetryInfo`, as gRPC clients look for in trailing metadata."""
    info = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_after_s))
    return bytes(info.SerializeToString())


def json(code: Code, message: str, retry_after_s: int | None = None) -> bytes:
    """A status as JSON."""
    details: list[dict[str, object]] = []
    if retry_after_s is not None:
        details.append(
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s}s"}
        )
    elif code is Code.INVALID_ARGUMENT:
        violations = [{"field": "body", "description": message}]
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations})
    return msgspec.json.encode({"code": int(code), "message": message, "details": details})
