"""The whole run as a line of time: where it begins and ends, and what went wrong when."""

from typing import Final

import msgspec

TIMELINE_VERSION: Final = "1.0"


class TimelineMark(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm."""

    place: float
    """When it was first shown, Unix seconds: a snapshot of then has it."""
    since: float
    """When it became true, which may be earlier."""
    severity: str
    """`warning` or `critical`."""
    code: str
    subject: str | None = None
    """`gpu gpu1`, `env 17`; absent for the run as a whole."""
    message: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Which moments there are to look at."""

    schema_version: str = TIMELINE_VERSION
    run_id: str
    """Empty where none was met so far."""
    first: float
    """The first moment that can be shown, Unix seconds."""
    last: float
    """The newest one, so far."""
    live: bool
    """A collector goes on beside it; else it is a recording."""
    past: bool
    """Whether moments before the newest can be shown: `at=` is answered."""
    read: float = 1.0
    """Which part of a recording was looked through so far; marks beyond it may be missing."""
    marks: tuple[TimelineMark, ...] = ()
    """Oldest first."""
