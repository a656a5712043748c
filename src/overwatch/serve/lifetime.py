"""How long what a run told stays on the page: by the run's life, not by the time since a value came.

Rules: all of a run is there while it lives, whatever the time between two updates. Of a run that ended, its
end, its counters and the findings that stood then stay for the expiration: a scrape sees them, and no alert
stays for ever. Of a run that is lost or silent, its state and its moments stay until it emits again, an
operator acknowledges that, or the retention is over. Pure.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from overwatch.snapshot import Snapshot

NO_END: Final = ("run-lost", "run-silent")
"""Findings about a run that sent no end record."""


class Part(Enum):
    """What of a run is on the page."""

    ALL = "all"
    END = "end"
    """Identity, state, moments, counters, and what stood at the end."""
    STATE = "state"
    """Identity, state and moments."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long things stay."""

    expiration_s: float = 300.0
    """For how long after a run's end its last word stays, and a reading of a machine that tells no more."""
    lost_retention_s: float = 86_400.0
    """For how long the state of a lost or silent run stays."""

    def __post_init__(self) -> None:
        for name in ("expiration_s", "lost_retention_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")


def part_of(snapshot: Snapshot, lifetimes: Lifetimes) -> Part:
    """What of a run is shown."""
    age_s = snapshot.link.data_age_s or 0.0
    match snapshot.link.state:
        case "ended":
            return Part.END if age_s < lifetimes.expiration_s else Part.NONE
        case "lost" | "silent":
            seen = any(one.code in NO_END and one.acknowledged for one in snapshot.findings)
            return Part.STATE if age_s < lifetimes.lost_retention_s and not seen else Part.NONE
        case _:
            return Part.ALL


def is_told(age_s: float | None, lifetimes: Lifetimes) -> bool:
    """Whether a reading of a machine is young enough to be shown; one of unknown age is."""
    return age_s is None or age_s < lifetimes.expiration_s
