"""Traces: that of a turn of the training loop, and spans that a process makes and names to those it calls.

Trace and span of a turn follow from the run's id and the number of the update, so that phases of the trainer,
of its other ranks and of actors meet in one trace with no exchange between them. Every other span has random
numbers, and goes to the process that is called as a header of W3C Trace Context.
"""

import hashlib
import os
import re
import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from overwatch.sdk.frames import SpanEnded

MOST_LINKS: Final = 128
"""Links of one span; OpenTelemetry's own limit."""
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class SpanRef(NamedTuple):
    """A span that is recorded, by OpenTelemetry's numbers."""

    trace_id: int
    span_id: int

    @property
    def traceparent(self) -> str:
        """As a header of W3C Trace Context."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


@dataclass(slots=True)
class Span:
    """A span while it is open."""

    ref: SpanRef
    parent: SpanRef | None
    links: dict[SpanRef, None] = field(default_factory=dict)
    """Spans of other traces that this one goes on with, each once."""
    attributes: dict[str, str | int | float] = field(default_factory=dict)
    is_void: bool = False
    """Set where nothing came of it: it is not sent."""

    @property
    def traceparent(self) -> str:
        """As a header of W3C Trace Context, for those who are called within it."""
        return self.ref.traceparent

    def ended(self, name: str, duration_s: float) -> SpanEnded:
        """What is sent of it, when it ends now."""
        return SpanEnded(
            at=time.time_ns(),
            name=name,
            duration_s=duration_s,
            traceparent=self.traceparent,
            parent=None if self.parent is None else self.parent.traceparent,
            links=tuple(link.traceparent for link in self.links),
            attributes=self.attributes,
        )

    def link(self, traceparent: str | None) -> None:
        """Link to a span of another trace; what names none, and what is too many, is left out."""
        found = parsed(traceparent)
        if found is not None and len(self.links) < MOST_LINKS:
            self.links[found] = None


def parsed(traceparent: str | None) -> SpanRef | None:
    """The span that a header names; `None` for one that is not recorded, and for no such header.

    >>> parsed(SpanRef(1, 2).traceparent)
    SpanRef(trace_id=1, span_id=2)
    >>> parsed(SpanRef(1, 2).traceparent[:-1] + "0") is parsed("no header") is parsed(None) is None
    True
    """
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent.strip().lower())
    if found is None or not int(found[3], 16) & 1:
        return None
    ref = SpanRef(int(found[1], 16), int(found[2], 16))
    return ref if ref.trace_id and ref.span_id else None


def opened(parent: str | None = None) -> Span:
    """A new span: below that of a header, or a trace of its own where the header names none."""
    above = parsed(parent)
    trace_id = _random(128) if above is None else above.trace_id
    return Span(SpanRef(trace_id, _random(64)), above)


def _random(bits: int) -> int:
    """By the system: the trainer's own generators are its own. A number of zeros alone is none."""
    return int.from_bytes(os.urandom(bits // 8)) or 1


def unnumbered(count: int) -> str:
    """What stands for the number of the newest update where it has none, or where there was none yet."""
    return f"#{count}"


def loop_of(run_id: str, update: int | str) -> SpanRef:
    """The turn of a run that began with this update, its newest; or with so many, see `unnumbered`.

    >>> loop_of("run", 3).traceparent == loop_of("run", 3).traceparent != loop_of("run", 4).traceparent
    True
    """
    digest = hashlib.sha256(f"{run_id}\0{update}".encode("utf-8", "surrogatepass")).digest()
    # A number of zeros alone is none.
    return SpanRef(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1)
