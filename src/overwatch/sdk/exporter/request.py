"""One encoded OTLP request of a trainer.

Shared by the spool, which keeps requests, and the sender, which delivers them. Must not know either.
"""

from overwatch.delivery.request import Parcel


class Request(Parcel, frozen=True, kw_only=True):
    """An export request with what the trainer's counts say of it."""

    order: int
    """1 for the first request of a producer's life, then without gaps; survives a restart of the exporter."""
    is_fact: bool
    """Holds at least one fact; numbers are given up first."""
    records: int
    """Records of the trainer in it; the exporter's own are not counted."""
    last_seq: int
    """`overwatch.seq` of the newest log record in it or before it; 0 before the first."""
