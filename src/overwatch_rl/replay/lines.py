"""The table of kinds of places that hold experience: how each is called, and how leases come from it.

Owns one row per kind. Must not know what is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay.base import LeaseOf
from overwatch_rl.replay.connection import Access, Connection, Line, Patience, State
from overwatch_rl.replay.redis_streams import RedisLeases, RedisLine
from overwatch_rl.replay.streaming import LeaseStream

Changed = Callable[[State, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of place."""

    schemes: tuple[str, ...]
    """Of its addresses; an address without one is `host:port`."""
    line: Callable[[str, Access, Patience, Changed], Line]
    leases: Callable[
        [Any, pb.LeaseRequest, int, Callable[[LeaseOf | Exception], None]], LeaseStream | RedisLeases
    ]
    """Given the line, what is leased, how many may wait, and where they go."""
    is_silent: bool
    """Whether it reports nothing to the tower, so that a learner does it."""


KINDS: Final[dict[str, Kind]] = {
    "replay server": Kind(
        schemes=("", "grpc", "grpcs"), line=Connection, leases=LeaseStream, is_silent=False
    ),
    "Redis Streams": Kind(
        schemes=("redis", "rediss", "unix"), line=RedisLine, leases=RedisLeases, is_silent=True
    ),
}
"""Kinds of places by name."""


def kind_of(address: str) -> Kind:
    """That of an address. Raises `ValueError` naming those that there are."""
    scheme, mark, _ = address.partition("://")
    for kind in KINDS.values():
        if (scheme if mark else "") in kind.schemes:
            return kind
    known = ", ".join(f"{one}://" for kind in KINDS.values() for one in kind.schemes if one)
    raise ValueError(f"{scheme}:// is no place of experience; write host:port, or an address of {known}")
