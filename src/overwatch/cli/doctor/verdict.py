"""What a check says: how bad, what was found, what to do. Pure; must not know what is checked."""

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How a thing is; the value is the word that is shown."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as it could, or not for long."""
    FAILURE = "failure"
    """It does not work."""

    @property
    def rank(self) -> int:
        """0 for ok up to 2 for a failure: the command's status."""
        return list(State).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One thing that was looked at."""

    area: str
    """Which check it belongs to, e.g. `ports`."""
    state: State
    found: str
    """What is so, in one sentence."""
    fix: str = ""
    """What to do; never empty where something is wrong."""


def ok(area: str, found: str) -> Verdict:
    """All is well."""
    return Verdict(area=area, state=State.OK, found=found)


def warning(area: str, found: str, fix: str) -> Verdict:
    """It works, but not well."""
    return Verdict(area=area, state=State.WARNING, found=found, fix=fix)


def failure(area: str, found: str, fix: str) -> Verdict:
    """It does not work."""
    return Verdict(area=area, state=State.FAILURE, found=found, fix=fix)
