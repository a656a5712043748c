"""Samples per insert: which side of a table has to wait for the other.

Owns the ratio, nothing else. With i steps inserted and s steps sampled, `i x ratio - s` is kept within
`buffer` of where it was when the table first had `min_steps`. Both sides are asked before they act and may
then act by any number of steps, so neither can be too large to pass. Rules: below `min_steps` only inserts go
on; otherwise at least one side may always go on, so there is no deadlock (checked over all reachable states).
The idea and the names are Reverb's (Cassirer et al. 2021, "Reverb: A Framework for Experience Replay"). Pure.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What a limiter holds."""

    samples_per_insert: float | None = None
    """Steps sampled for each step inserted; `None`: neither side waits for the ratio."""
    min_steps: int = 1
    """Steps held before the first sample; a table must have room for so many."""
    buffer: float | None = None
    """Steps sampled too many or too few that are let pass; `None`: the samples of `min_steps`, at least 1."""

    def __post_init__(self) -> None:
        ratio = self.samples_per_insert
        if ratio is not None and not 0 < ratio < float("inf"):
            raise ValueError(
                f"samples per insert is {ratio}, not a number above 0; leave it out for no limit"
            )
        if self.min_steps < 1:
            raise ValueError(f"min_steps is {self.min_steps}, not 1 or more")
        if self.buffer is not None and not 0 <= self.buffer < float("inf"):
            raise ValueError(f"buffer is {self.buffer}, not a number from 0")


class Limiter:
    """What was inserted and sampled since the table was empty."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.inserted = self.sampled = 0
        """Steps."""

    @property
    def _room(self) -> float:
        if self.rate.buffer is not None:
            return self.rate.buffer
        return max(1.0, self.rate.min_steps * (self.rate.samples_per_insert or 0.0))

    @property
    def lead(self) -> float:
        """Samples that inserts are ahead of where the ratio wants them; below 0 they are behind."""
        ratio = self.rate.samples_per_insert or 0.0
        return (self.inserted - self.rate.min_steps) * ratio - self.sampled

    def may_insert(self, held: int) -> bool:
        """Whether inserts go on while the table holds so many steps."""
        if self.rate.samples_per_insert is None or held < self.rate.min_steps:
            return True
        return self.lead <= self._room

    def may_sample(self, held: int) -> bool:
        """Whether samples go on while the table holds so many steps."""
        if held < self.rate.min_steps:
            return False
        return self.rate.samples_per_insert is None or self.lead >= -self._room

    def insert(self, steps: int) -> None:
        """Steps were inserted."""
        self.inserted += steps

    def sample(self, steps: int) -> None:
        """Steps were sampled."""
        self.sampled += steps

    def clear(self) -> None:
        """The table was emptied: the ratio begins anew."""
        self.inserted = self.sampled = 0
