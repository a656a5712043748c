"""Names of lanes and of what was beyond a cap, so that a cap is seen, not guessed.

A lane is known by its id (a GPU's UUID), and shown by what its trainer calls it. Rules: a name belongs to one
lane of the run, whatever the number of nodes, and stays with it; an id that comes without a name is its own.
"""

from collections.abc import Container

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


class LaneIds(msgspec.Struct, kw_only=True):
    """The ids behind the names of lanes."""

    names: dict[str, str] = msgspec.field(default_factory=dict)
    """By lane id."""
    ids: dict[str, str] = msgspec.field(default_factory=dict)
    """By name."""
    nodes: dict[str, str] = msgspec.field(default_factory=dict)
    """Host name of the machine that a lane is part of, by name."""

    def name(self, lane_id: str) -> str:
        """What to call a lane."""
        return self.names.get(lane_id, lane_id)

    def call(self, lane_id: str, label: str, node: str | None, taken: Container[str]) -> None:
        """Learn what a lane is called; only the first has the plain word."""
        if lane_id in self.names or lane_id in taken:
            return
        there = f"{label}@{node}" if node else label
        again = (f"{there}#{number}" for number in range(2, len(self.names) + 3))
        name = next(word for word in (label, there, *again) if word not in self.ids and word not in taken)
        self.names[lane_id], self.ids[name] = name, lane_id
        if node:
            self.nodes[name] = node
