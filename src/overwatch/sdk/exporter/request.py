"""One encoded OTLP request on its way, and the collector's answer to it.

Shared by the spool, which keeps requests, and the sender, which delivers them. Must not know either.
"""

import enum

import msgspec

from overwatch.journal import Signal


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An export request, encoded once and never touched again."""

    order: int
    """1 for the first request of a producer's life, then without gaps; survives a restart of the exporter."""
    signal: Signal
    body: bytes
    """Protobuf bytes of the signal's export request, not compressed."""
    is_fact: bool
    """Holds at least one fact; numbers are given up first."""
    records: int
    """Records of the trainer in it; the exporter's own are not counted."""
    last_seq: int
    """`overwatch.seq` of the newest log record in it or before it; 0 before the first."""


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
