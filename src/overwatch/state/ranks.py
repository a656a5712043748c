"""Many processes, one run: whose words define the run, whose policy numbers count.

Rules: the lowest trainer rank heard speaks for the policy, the others give the spread; envs, lanes and
phases come from all. Must not know how numbers are judged.
"""

import math
from typing import Final

import msgspec

from overwatch.catalog import BY_NAME, NonFinite
from overwatch.events import Column, Origin, RunStarted

MAX_NAMES: Final = 512
"""Values that ranks tell beside the one that counts."""
MAX_SPREAD: Final = 1024
"""Most ranks whose policy numbers are kept beside the leading one's."""


class Ranks(msgspec.Struct, kw_only=True):
    """What the ranks of one run said that only makes sense together."""

    starts: dict[str, RunStarted] = {}
    """The newest start of each (role, rank)."""
    leader: int | None = None
    """The rank whose policy numbers are the run's."""
    others: dict[str, dict[int, float]] = {}
    """Newest finite values of the other ranks, by full metric name, then by rank."""
    broken: dict[int, dict[str, str]] = {}
    """Values of the other ranks that must be numbers and are none now: what they are, by rank and name."""

    def started(self, origin: Origin, event: RunStarted) -> RunStarted:
        """The run's definition now that this process has started."""
        self.starts[f"{origin.role}/{origin.rank:09d}"] = event
        trainers = {who: start for who, start in self.starts.items() if who.startswith("trainer/")}
        ordered = [start for _, start in sorted((trainers or self.starts).items())]
        counts = [start.n_envs for start in ordered if start.n_envs is not None]
        return msgspec.structs.replace(
            ordered[0],
            devices=tuple(dict.fromkeys(lane for start in ordered for lane in start.devices)),
            n_envs=sum(counts) if len(counts) == len(ordered) else ordered[0].n_envs,
        )

    def leads(self, rank: int) -> bool:
        """Whether a rank that now tells policy numbers is the one that counts."""
        if self.leader is None or rank <= self.leader:
            self.leader = rank
            return True
        return False

    def aside(self, rank: int, values: dict[str, Column]) -> None:
        """Keep the policy numbers of a rank that does not lead."""
        for name, column in values.items():
            if not len(column):
                self._end(rank, name)
                continue
            value = column.first()
            self._note_broken(rank, name, value)
            if name not in self.others and len(self.others) >= MAX_NAMES:
                continue
            known = self.others.setdefault(name, {})
            if math.isfinite(value) and (rank in known or len(known) < MAX_SPREAD):
                known[rank] = value

    def _end(self, rank: int, name: str) -> None:
        """Forget a value that a rank sends no more."""
        self.others.get(name, {}).pop(rank, None)
        self._note_broken(rank, name, 0.0)

    def _note_broken(self, rank: int, name: str, value: float) -> None:
        row = BY_NAME.get(name)
        if not math.isfinite(value) and row is not None and row.non_finite is NonFinite.CRITICAL:
            if rank in self.broken or len(self.broken) < MAX_SPREAD:
                word = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
                self.broken.setdefault(rank, {})[name] = word
        elif self.broken.get(rank, {}).pop(name, None) is not None and not self.broken[rank]:
            del self.broken[rank]

    def spread(self, name: str, value: float | None) -> float | None:
        """Largest minus smallest over all ranks; `None` with fewer than two."""
        values = [*self.others.get(name, {}).values(), *(() if value is None else (value,))]
        return max(values) - min(values) if len(values) > 1 else None
