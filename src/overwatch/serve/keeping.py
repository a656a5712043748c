"""Which runs on disk go, and why: by bytes, by count, by age.

Rules: the oldest first, those of one moment by their ids. Pure; must not know files.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from overwatch.snapshot import RunLine

Reason: TypeAlias = Literal["age", "count", "bytes"]
REASONS: Final[tuple[Reason, ...]] = ("age", "count", "bytes")
_DAY_S: Final = 86_400


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept."""

    bytes: float = float("inf")
    runs: int | None = None
    """So many, the newest; all where it is left out."""
    days: float | None = None
    """For so long, since it was put away; for ever where it is left out."""


def beyond(kept: Sequence[tuple[RunLine, int]], limits: Limits, now_s: float) -> list[tuple[str, Reason]]:
    """Runs that go, in this order, of those that are kept with their bytes."""
    ordered = sorted(kept, key=lambda one: (one[0].time, one[0].run_id))
    stay, gone, total = list[tuple[RunLine, int]](), dict[str, Reason](), 0
    for number, (line, size) in enumerate(ordered):
        is_old = limits.days is not None and now_s - line.time > limits.days * _DAY_S
        is_beyond = limits.runs is not None and len(ordered) - number > limits.runs
        if is_old or is_beyond:
            gone[line.run_id] = "age" if is_old else "count"
            continue
        stay.append((line, size))
        total += size
    for line, size in stay:
        if total <= limits.bytes:
            break
        gone[line.run_id] = "bytes"
        total -= size
    return list(gone.items())
