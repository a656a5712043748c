"""One encoded OTLP request on its way, and what a collector's reply to it means.

Rules: of HTTP only 429, 502, 503 and 504 may be tried again, of gRPC what OTLP lists; a text of the
collector is made fit to show and cut. Pure. Must not know who keeps requests, nor who delivers them.
"""

import enum
import math
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from overwatch.delivery.connection import MAX_REPLY, Reply
from overwatch.journal import Signal


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """An export request, encoded once and never touched again."""

    signal: Signal
    body: bytes
    """Protobuf bytes of the signal's export request, not compressed."""


class Verdict(enum.Enum):
    """What became of a request."""

    TAKEN = "taken"
    AGAIN = "again"
    """The collector is away or busy; the same request may be sent again."""
    REFUSED = "refused"
    """Sending it again is of no use."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The collector's answer to a request."""

    verdict: Verdict
    rejected: int = 0
    """Records (or points, or spans) of a taken request that the collector did not keep."""
    code: str = ""
    """Of an answer that is not `TAKEN`: HTTP status, gRPC code in lower case, or the kind of failure."""
    detail: str = ""
    """For a person: the status, or the collector's own words."""
    retry_after_s: float | None = None
    """How long the collector asked to be left alone; bounded."""


LONGEST_WAIT_S: Final = 60.0
"""The longest that a collector may ask to be left alone."""
TOO_LONG: Final = Answer(
    verdict=Verdict.REFUSED, code="reply", detail=f"its reply is longer than {MAX_REPLY >> 20} MiB"
)
"""OTLP: what was answered at too great a length is not sent again."""
CLOSED: Final = Answer(verdict=Verdict.AGAIN, code="closed", detail="closed")

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_LONGEST_TEXT: Final = 200


def judge(reply: Reply, now: float) -> Answer:
    """The answer in a reply over HTTP; `now` is Unix time in seconds."""
    if 200 <= reply.status < 300:
        return taken(reply.body)
    detail = f"HTTP {reply.status} {reply.reason}".strip()
    location = reply.headers.get("location") if 300 <= reply.status < 400 else None
    if location is not None:
        detail += f", a redirect to {_host(location)}, which is not followed"
    elif message := _status_message(reply):
        detail += f": {message}"
    again = reply.status in _RETRYABLE
    return Answer(
        verdict=Verdict.AGAIN if again else Verdict.REFUSED,
        code=str(reply.status),
        detail=shown(detail),
        retry_after_s=retry_after_s(reply, now) if again else None,
    )


def taken(body: bytes) -> Answer:
    """The answer in an export response of any signal: the three have the same shape on the wire."""
    response = ExportLogsServiceResponse()
    try:
        response.ParseFromString(body)
    except DecodeError:
        return Answer(verdict=Verdict.TAKEN, detail="the answer is no OTLP")
    partial = response.partial_success
    rejected = max(partial.rejected_log_records, 0)
    return Answer(verdict=Verdict.TAKEN, rejected=rejected, detail=shown(partial.error_message))


def retry_after_s(reply: Reply, now: float) -> float | None:
    """Seconds of a `Retry-After`, bounded; a date is compared with the server's own clock, if given."""
    value, date = reply.headers.get("retry-after"), reply.headers.get("date")
    if value is None:
        return None
    try:
        return bounded(float(value))
    except ValueError:
        pass
    until, since = _unix(value), None if date is None else _unix(date)
    return None if until is None else bounded(until - (now if since is None else since))


def retry_info_s(details: bytes) -> float | None:
    """Seconds of the `RetryInfo` in a `google.rpc.Status`, bounded; `None` where there is none."""
    status, info = Status(), RetryInfo()
    try:
        status.ParseFromString(details)
        for detail in status.details:
            if detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(info):
                return bounded(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    except DecodeError:
        return None
    return None


def bounded(asked_s: float) -> float | None:
    """A wait that a collector may ask for; `None` when it is no time."""
    return None if math.isnan(asked_s) else min(max(asked_s, 0.0), LONGEST_WAIT_S)


def shown(text: str) -> str:
    """Text of a collector, fit to show on one line."""
    return "".join(character if character.isprintable() else " " for character in text[:_LONGEST_TEXT])


def _host(location: str) -> str:
    """The server in a URL, or the URL's own path; no query, no user."""
    bare = location.partition("?")[0].partition("#")[0]
    _, slashes, rest = bare.partition("//")
    return rest.partition("/")[0].rpartition("@")[2] if slashes else bare


def _status_message(reply: Reply) -> str:
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-protobuf":
        return ""
    status = Status()
    try:
        status.ParseFromString(reply.body)
    except DecodeError:
        return ""
    return str(status.message)


def _unix(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
