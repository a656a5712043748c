"""What a rule finds wrong, and how patient one must be with it."""

from typing import Final

import msgspec

SECOND_NS: Final = 1_000_000_000


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How a problem becomes a finding and stops being one; nanoseconds of the stamp clock."""

    hold: int = 0
    """It must last this long before it opens."""
    clear: int = 0
    """It must be gone this long before it clears."""
    cooldown: int = 0
    """After it cleared it does not open again for this long, unless it is worse, or critical: that is never
    kept back."""
    cooldown_updates: int = 0
    """And for so many updates, however long they take."""


FACT: Final = Patience()
"""A fact needs no patience: a crash, a NaN, the end of a run."""
UPDATES: Final = Patience(cooldown=30 * SECOND_NS, cooldown_updates=20)
"""Its hold is counted in updates by the rule itself; a second and a minute may both be an update."""
STEADY: Final = Patience(hold=2 * SECOND_NS, clear=3 * SECOND_NS, cooldown=30 * SECOND_NS)
"""A judgement about levels and counts, which may flicker at its limit."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong now."""

    code: str
    severity: str
    scope: str
    subject: str | None
    at: int
    """Producer's or receive time at which it became true, Unix ns."""
    message: str
    hint: str
    factors: tuple[str, ...] = ()
    symptoms: int = 0
    """Envs or rows that are off because of this, and have no finding of their own."""
    patience: Patience = FACT
    absorbs: tuple[str, ...] = ()
    """Codes of findings that this one takes over: they leave at once, they have not cleared."""
    names: int | None = None
    """The env that the hint names, where it is about more than one."""
    usual: float | None = None
    """What was usual when it opened, in the rule's own unit: what it does later must not become usual."""
    stands: float | None = None
    """The level at which the rule lets go again, fixed when it opened."""

    @property
    def id(self) -> str:
        """Stable identity: what, about whom."""
        return f"{self.code}:{self.scope}:{self.subject or ''}"


def env_of(problem_id: str) -> int | None:
    """The env that a problem of this id is about, `None` where it is about something else."""
    _code, scope, subject = problem_id.split(":", 2)
    return int(subject) if scope == "env" else None
