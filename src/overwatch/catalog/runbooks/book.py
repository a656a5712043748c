"""The shape of a runbook entry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """What to know of one kind of finding."""

    code: str
    means: str
    """What is the matter, in a sentence or two."""
    confirm: str
    """How to see that it is so."""
    act: str
    """What to do, first things first."""
