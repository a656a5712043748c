"""One encoded OTLP request on its way, and the server's answer to it.

Must not know who keeps requests, nor who delivers them.
"""

import enum

import msgspec

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
    """For a person: the status, or what the collector said."""
    retry_after_s: float | None = None
    """How long the collector asked to be left alone; bounded."""
