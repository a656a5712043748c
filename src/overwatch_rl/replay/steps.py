"""A table whose items are single steps: a ring, and a selector that draws from it.

Owns what a request of a table of steps means. Rules: steps are in memory only and drawn with replacement; the
oldest chunks make room for new ones, by steps and by bytes; a priority for a step that is gone is counted and
dropped. Must not know limiters nor the wire.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch_rl.protos.replay.v1.replay_pb2 import ClearRequest
from overwatch_rl.replay.base import Refused, Removal, Sampled, TableConfig, TableStats, Taken, matching
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.ring import Placed, Ring
from overwatch_rl.replay.selectors import SELECTORS, checked

EXPONENT: Final = 0.4
"""Of importance weights where a sample names none."""
_NO_PRIORITIES: Final = MappingProxyType[int, float]({})


class Steps:
    """One table of steps."""

    def __init__(self, config: TableConfig, encoding: Encoding) -> None:
        """Raises `ValueError` where there is no room for what the limiter needs."""
        capacity = config.capacity
        self.ring = Ring(encoding, min(capacity.items, max(1, capacity.bytes // Ring.row_bytes(encoding))))
        sure = min(capacity.items, capacity.bytes // self.ring.cost(1, ""))
        if sure < config.rate.min_steps:
            raise ValueError(
                f"table {config.name!r} has room for {sure} single steps, too few for min_steps "
                f"{config.rate.min_steps}: use more items or bytes"
            )
        self.config = config
        self._selector = SELECTORS[config.selector](self.ring, config.priorities)
        self._random = np.random.default_rng(config.seed)
        self._envs: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._accepted = self._sampled = self._late = 0

    @staticmethod
    def check(config: TableConfig) -> None:
        """Raise `ValueError` for what a table of steps does not offer."""
        name = f"table {config.name!r} of steps"
        if config.selector not in SELECTORS:
            known = ", ".join(sorted(SELECTORS))
            raise ValueError(f"{name}: selector {config.selector!r} is none of {known}")
        if config.remover != "oldest":
            raise ValueError(f"{name}: remover {config.remover!r} is not oldest, as that of steps is")

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        return self.ring.num_steps

    def append(
        self, chunks: Sequence[Chunk], now: int, priorities: Mapping[int, float] = _NO_PRIORITIES
    ) -> Taken | Refused:
        """Take all of checked chunks; the oldest make room. `priorities` are of steps by their place."""
        ring, most = self.ring, self.config.capacity.bytes
        steps = sum(chunk.steps for chunk in chunks)
        size = sum(ring.cost(chunk.steps, chunk.env) for chunk in chunks)
        if steps > ring.rows or size > most:
            return Refused(
                reason="too_large",
                message=f"{steps} steps of {size} bytes; table {self.config.name!r} holds {ring.rows} steps "
                f"and {most} bytes: send fewer at once",
            )
        while ring.head + steps - ring.tail > ring.rows or ring.size + size > most:
            self._forget(ring.pop(), "evicted")
        first = ring.head
        for chunk in chunks:
            begin = ring.head
            ring.write(chunk, now)
            for place, _ in ring.spans(begin, begin + chunk.steps):
                self._selector.wrote(place.start, place.stop, is_step=True)
            self._envs[chunk.env] += chunk.steps
        self._accepted += steps
        if priorities:
            slots = (first + np.fromiter(priorities, np.int64)) % ring.rows
            self._selector.update(slots, np.fromiter(priorities.values(), np.float64))
        return Taken(items=steps, steps=steps)

    def remove(self, which: ClearRequest) -> int:
        """Remove the steps of chunks; how many."""
        before, held, matches = self.ring.num_steps, list(self.ring.chunks), matching(which)
        newer = 0
        for index in range(len(held) - 1, -1, -1):
            placed = held[index]
            if placed.steps and newer >= which.keep_last and matches(placed.env, placed.at, placed.version):
                held[index] = self.ring.clear(placed)
                self._forget(placed, "cleared")
            newer += placed.steps
        self.ring.hold(held)
        return before - self.ring.num_steps

    def sample(self, count: int, exponent: float | None = None) -> Sampled | None:
        """Draw with replacement; `exponent` is that of the importance weights; `None` where it is empty."""
        if count < 1:
            raise ValueError(f"a sample of {count} steps; use 1 or more")
        if exponent is not None and not 0.0 <= exponent <= 1.0:
            raise ValueError(f"the exponent of importance weights is {exponent}; use 0 to 1")
        ring = self.ring
        if not ring.num_steps:
            return None
        slots = self._selector.draw(count, self._random)
        lineages, numbers = ring.versions(slots)
        self._sampled += count
        return Sampled(
            slots=slots,
            generations=ring.generations(slots),
            columns=ring.read(slots),
            weights=self._selector.weights(slots, EXPONENT if exponent is None else exponent),
            lineages=lineages,
            versions=numbers,
            available=ring.num_steps,
            accepted=self._accepted,
        )

    def update_priorities(
        self,
        slots: npt.NDArray[np.int64],
        generations: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
    ) -> int:
        """Set priorities; how many came too late, as another step has the slot now.

        Raises `ValueError` for a priority that is none, or where there are not as many of each.
        """
        if not slots.shape == generations.shape == priorities.shape:
            raise ValueError(
                f"{slots.shape} slots, {generations.shape} generations and {priorities.shape} priorities; "
                "give as many of each"
            )
        checked(priorities)
        alive = self.ring.alive(slots, generations)
        late = len(slots) - int(np.count_nonzero(alive))
        if late:
            slots, priorities = slots[alive], priorities[alive]
            self._late += late
        self._selector.update(slots, priorities)
        return late

    def stats(self) -> TableStats:
        """What it holds and did."""
        held = [placed.at for placed in self.ring.chunks if placed.steps]
        return TableStats(
            name=self.config.name,
            kind=self.config.kind,
            items=self.ring.num_steps,
            steps=self.ring.num_steps,
            bytes=self.ring.size,
            accepted=self._accepted,
            removed=dict(self._removed),
            sampled=self._sampled,
            late={"priority": self._late},
            envs=dict(self._envs),
            oldest=min(held, default=None),
            newest=max(held, default=None),
            most_items=self.ring.rows,
            most_bytes=self.config.capacity.bytes,
        )

    def _forget(self, placed: Placed, reason: Removal) -> None:
        """Nothing of a chunk is drawn any more."""
        for place, _ in self.ring.spans(placed.begin, placed.end):
            self._selector.wrote(place.start, place.stop, is_step=False)
        self._removed[reason] += placed.steps
        self._envs[placed.env] -= placed.steps
        if not self._envs[placed.env]:
            del self._envs[placed.env]
