"""What is wrong and what was said, as a view may know it."""

import msgspec


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding is about."""

    scope: str
    id: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with the next step."""

    id: str
    code: str
    severity: str
    subject: Subject
    since: float
    message: str
    hint: str = ""
    factors: tuple[str, ...] = ()
    symptoms: int = 0
    acknowledged: bool = False
    cleared_at: float | None = None
    ended_at: float | None = None
    """When the run ended while it was open: it has not cleared, and is not judged any more."""
    runbook_url: str | None = None


class FeedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the raw feed, structured."""

    time: float
    severity: str
    subsystem: str
    message: str
    env_id: int | None = None
    gpu_id: str | None = None
    slot: str | None = None
    seed_id: str | None = None
    kind: str = "log"
    """The event's tag, for the feed's toggles."""
    fields: dict[str, str] = {}
