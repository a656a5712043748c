"""The trace of one turn of a run's training loop, known to each of its processes without a word between them.

Trace and span follow from the run's id and the number of the update, so that phases of the trainer, of its
other ranks and of actors meet in one trace; whoever is called by another protocol is told as W3C says. Pure.
"""

import hashlib
from typing import NamedTuple


class Loop(NamedTuple):
    """The span of one turn, by OpenTelemetry's numbers."""

    trace_id: int
    span_id: int

    @property
    def traceparent(self) -> str:
        """As a header of W3C Trace Context."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def unnumbered(count: int) -> str:
    """What stands for the number of the newest update where it has none, or where there was none yet."""
    return f"#{count}"


def loop_of(run_id: str, update: int | str) -> Loop:
    """The turn of a run that began with this update, its newest; or with so many, see `unnumbered`.

    >>> loop_of("run", 3).traceparent == loop_of("run", 3).traceparent != loop_of("run", 4).traceparent
    True
    """
    digest = hashlib.sha256(f"{run_id}\0{update}".encode("utf-8", "surrogatepass")).digest()
    # A number of zeros alone is none.
    return Loop(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1)
