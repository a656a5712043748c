"""What was too much of a kind, and who brought it: so that a cap is seen, not guessed."""

import msgspec

OFFENDERS = 8
"""Names remembered of each kind."""


class Overflow(msgspec.Struct, kw_only=True):
    """What one run was not given, by kind: `metric`, `env`, `lane`, `slot`, `name` or `producer`."""

    counts: dict[str, int] = {}
    """How often something of a kind was beyond its cap."""
    offenders: dict[str, dict[str, int]] = {}
    """The first names of each kind that were, and how often each was."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values()) if self.counts else 0

    def copy(self) -> "Overflow":
        """The same as of now, for readers in other threads."""
        return Overflow(
            counts=dict(self.counts), offenders={kind: dict(names) for kind, names in self.offenders.items()}
        )

    def note(self, kind: str, name: str, times: int = 1) -> None:
        """Count what was beyond a cap."""
        self.counts[kind] = self.counts.get(kind, 0) + times
        names = self.offenders.setdefault(kind, {})
        if name in names or len(names) < OFFENDERS:
            names[name] = names.get(name, 0) + times
