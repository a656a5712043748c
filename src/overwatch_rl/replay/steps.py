"""A table whose items are single steps: a ring, and a selector that draws from it.

Owns what a request of a table of steps means. Rules: steps are in memory only and drawn with replacement; the
oldest chunks make room for new ones; a priority for a step that is gone is counted and dropped. A final
observation takes a row of the capacity, as a step does. Must not know limiters nor the wire.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import numpy as np
import numpy.typing as npt

from overwatch_rl.replay.base import (
    Durability,
    Refused,
    Sampled,
    TableConfig,
    TableStats,
    Taken,
    Which,
    Writer,
)
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.ring import Placed, Ring
from overwatch_rl.replay.selectors import SELECTORS

MOST_WRITERS: Final = 4096
"""Writers whose last request is remembered."""
EXPONENT: Final = 0.4
"""Of importance weights where a sample names none."""


class Steps:
    """One table of steps."""

    def __init__(self, config: TableConfig, encoding: Encoding) -> None:
        """Raises `ValueError` for what a table of steps does not offer."""
        if config.selector not in SELECTORS:
            known = ", ".join(sorted(SELECTORS))
            raise ValueError(
                f"table {config.name!r} of steps: selector {config.selector!r} is none of {known}"
            )
        if config.durability is not Durability.MEMORY:
            raise ValueError(f"table {config.name!r} of steps is in memory; durable tables are of sequences")
        rows = min(config.capacity.items, config.capacity.bytes // Ring.row_bytes(encoding))
        if rows < 1:
            raise ValueError(
                f"table {config.name!r}: {config.capacity.bytes} bytes have no room for one step of "
                f"{Ring.row_bytes(encoding)}; use more bytes"
            )
        self.ring = Ring(encoding, rows)
        self._config = config
        self._row_bytes = Ring.row_bytes(encoding)
        self._selector = SELECTORS[config.selector](self.ring, config.priorities)
        self._random = np.random.default_rng(config.seed)
        self._writers: dict[str, int] = {}
        self._envs: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._accepted = self._sampled = self._late = 0
        self._safe: Future[None] = Future()
        self._safe.set_result(None)

    @property
    def steps(self) -> int:
        """Steps that it holds."""
        return self.ring.num_steps

    def append(self, chunks: Sequence[Chunk], writer: Writer | None, now: int) -> Taken | Refused:
        """Take all of checked chunks; the oldest make room."""
        if writer is not None and writer.number <= self._writers.get(writer.id, writer.number - 1):
            return Taken(items=0, steps=0, safe=self._safe, is_repeat=True)
        needed = sum(map(Ring.rows_of, chunks))
        if needed > self.ring.rows:
            message = (
                f"{needed} steps and final observations are more than the {self.ring.rows} rows of table "
                f"{self._config.name!r}"
            )
            return Refused(reason="too_large", message=message)
        self._make_room(needed)
        steps = 0
        for chunk in chunks:
            begin = self.ring.head
            self.ring.write(chunk, now)
            for place, _ in self.ring.spans(begin, begin + chunk.steps):
                self._selector.wrote(place.start, place.stop, is_step=True)
            steps += chunk.steps
            self._envs[chunk.env] += chunk.steps
        self._accepted += steps
        if writer is not None:
            self._writers.pop(writer.id, None)
            self._writers[writer.id] = writer.number
            if len(self._writers) > MOST_WRITERS:
                del self._writers[next(iter(self._writers))]
        return Taken(items=steps, steps=steps, safe=self._safe)

    def remove(self, which: Which, now: int) -> int:  # noqa: ARG002 they have no leases that end
        """Remove the steps of chunks; how many."""
        before, held = self.ring.num_steps, list(self.ring.chunks)
        kept = 0
        for index in range(len(held) - 1, -1, -1):
            placed = held[index]
            if placed.steps and kept >= (which.keep_last or 0) and _is_meant(placed, which):
                held[index] = self.ring.clear(placed)
                self._forget(placed, which.reason)
            kept += placed.steps
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
            name=self._config.name,
            kind=self._config.kind,
            items=self.ring.num_steps,
            steps=self.ring.num_steps,
            bytes=(self.ring.head - self.ring.tail) * self._row_bytes,
            accepted=self._accepted,
            removed=dict(self._removed),
            sampled=self._sampled,
            late={"priority": self._late},
            envs=dict(self._envs),
            oldest=min(held, default=None),
            newest=max(held, default=None),
        )

    def close(self) -> None:
        """Nothing is open."""

    def _make_room(self, rows: int) -> None:
        """Let the oldest chunks go until so many rows are free."""
        ring = self.ring
        while ring.head + rows - ring.tail > ring.rows:
            self._forget(ring.pop(), "evicted")

    def _forget(self, placed: Placed, reason: str) -> None:
        """Nothing of a chunk is drawn any more."""
        for place, _ in self.ring.spans(placed.begin, placed.end):
            self._selector.wrote(place.start, place.stop, is_step=False)
        self._removed[reason] += placed.steps
        self._envs[placed.env] -= placed.steps
        if not self._envs[placed.env]:
            del self._envs[placed.env]


def _is_meant(placed: Placed, which: Which) -> bool:
    """Whether all conditions hold of a chunk."""
    lineage, number = placed.version
    return (
        (which.env is None or placed.env == which.env)
        and (which.before is None or placed.at < which.before)
        and (which.older_than is None or placed.version < which.older_than)
        and (which.beyond is None or (lineage <= which.beyond[0] and number > which.beyond[1]))
    )
