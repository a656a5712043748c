"""Who speaks: one process of one attempt of one run."""

from typing import Final

import msgspec

PENDING: Final = "pending-"
"""How the stand-in for a run id begins, while a rank waits for rank 0 to say which run they are."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: one process of one attempt of one run."""

    run_id: str
    role: str = "trainer"
    rank: int = 0
    epoch: str = ""
    """Distinguishes two lives of the same (run, role, rank)."""
    join: str | None = None
    """Shared by the ranks of one launch that was given no run id; rank 0's id is then that of all."""
    ours: bool = False
    """Sent by Overwatch's SDK: folded from events, its OTLP metrics are for third parties."""
    task: str | None = None
    algo: str | None = None
    is_implied: bool = False
    """It names no run: the id is made of its service's name."""
    service: str | None = None
    """`service.name` of its resource, with `service.namespace/` before it where there is one."""
