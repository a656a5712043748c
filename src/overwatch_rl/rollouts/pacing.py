"""When a handler pauses and when it goes on.

Owns the two levels. The queue is measured in sequences, like the batch: a handler pauses above
`off_policy_tolerance` batches and goes on at half of that, so that it does not flutter around one level.
Pure; must not know where the numbers come from.
"""

from dataclasses import dataclass

RESUME_AT = 0.5
"""Part of the upper level at which a handler that paused goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Whether a handler generates."""

    above: float
    """Sequences in the queue above which it pauses."""
    is_paused: bool = False

    @classmethod
    def of(cls, off_policy_tolerance: float, batch_size: int) -> "Pacing":
        """A handler that runs, for batches of so many sequences."""
        return cls(above=off_policy_tolerance * batch_size)

    def after(self, queued: int) -> "Pacing":
        """What it is once so many sequences are queued."""
        level = self.above * RESUME_AT if self.is_paused else self.above
        return Pacing(above=self.above, is_paused=queued > level)
