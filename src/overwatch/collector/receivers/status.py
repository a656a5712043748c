"""`google.rpc.Status` for refusals, with what a sender may act on.

Must not know transports.
"""

from enum import IntEnum

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


def status(code: Code, message: str, retry_after_s: int | None = None) -> status_pb2.Status:
    """A status; with `RetryInfo` where the sender should come back, with the field where it is to blame."""
    made = status_pb2.Status(code=int(code), message=message)
    if retry_after_s is not None:
        made.details.add().Pack(retry_info(retry_after_s))
    elif code is Code.INVALID_ARGUMENT:
        violation = error_details_pb2.BadRequest.FieldViolation(field="body", description=message)
        made.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return made


def retry_info(retry_after_s: int) -> error_details_pb2.RetryInfo:
    """A bare `RetryInfo`, as gRPC clients look for in trailing metadata."""
    return error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_after_s))
