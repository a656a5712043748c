"""A ring of steps by column: what a table of steps stores, and where.

Owns rows, positions and which chunk lies where. Rules: a chunk lies in consecutive rows, its final
observation, where it has one, in the row after its last step; so the observation after a step is that of the
next row, stored once. Chunks go whole and oldest first, so what is held is never torn. A position only grows;
its slot is the rest after division by the number of rows, its generation the quotient: both together name one
step for ever. Must not know selectors, requests or time.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Array, Chunk, Encoding

Ints = npt.NDArray[np.int64]
_GOES_ON, _TERMINATED, _TRUNCATED = range(3)
_ENDS = {"terminated": _TERMINATED, "truncated": _TRUNCATED, "cut": _GOES_ON}
_OBSERVATION = "observation"


class Placed(NamedTuple):
    """A chunk in the ring."""

    begin: int
    """Position of its first step."""
    end: int
    """Position after its last row."""
    steps: int
    env: str
    version: tuple[int, int]
    at: int
    """When it was taken, in Unix nanoseconds."""


class Ring:
    """Rows for steps, allocated once; memory is taken by the system as rows are first written."""

    def __init__(self, encoding: Encoding, rows: int) -> None:
        """Raises `ValueError` for an encoding that steps cannot be drawn from."""
        for name in (_OBSERVATION, FINAL_OBSERVATION):
            if name not in encoding.by_name:
                raise ValueError(f"an encoding for single steps needs the column {name}")
        beside = [one.name for one in encoding.columns if not one.per_step and one.name != FINAL_OBSERVATION]
        if beside:
            raise ValueError(f"column {beside[0]!r} has one row a chunk; single steps have no place for it")
        self.rows = rows
        self.head = self.tail = self.num_steps = 0
        self._is_step = np.zeros(rows, np.bool_)
        self._ends = np.zeros(rows, np.uint8)
        self._lineages, self._numbers = (np.zeros(rows, np.int64) for _ in range(2))
        kept = [column for column in encoding.columns if column.per_step]
        self._columns = {one.name: np.zeros((rows, *one.shape), one.numpy) for one in kept}
        self._observations = self._columns.pop(_OBSERVATION)
        stores = {_OBSERVATION: self._observations} | self._columns
        self._stores = [(one.name, stores[one.name].data.cast("B"), one.row_bytes) for one in kept]
        self._observation = [one.name for one in kept].index(_OBSERVATION)
        self.chunks: deque[Placed] = deque()
        """What is held, oldest first; of those that were removed before their turn, 0 steps are left."""

    @staticmethod
    def row_bytes(encoding: Encoding) -> int:
        """What a row takes."""
        return encoding.step_bytes + 1 + 1 + 16

    @staticmethod
    def rows_of(chunk: Chunk) -> int:
        """Rows that a chunk takes."""
        return chunk.steps + (chunk.end != "terminated")

    def write(self, chunk: Chunk, at: int) -> None:
        """Store a checked chunk, for which there is room."""
        begin, end = self.head, self.head + chunk.steps
        for place, part in self.spans(begin, end):
            for name, store, width in self._stores:
                data = memoryview(chunk.columns[name]).cast("B")
                store[place.start * width : place.stop * width] = data[part.start * width : part.stop * width]
            self._is_step[place] = True
            self._ends[place] = _GOES_ON
            self._lineages[place] = chunk.lineage
            self._numbers[place] = chunk.version
        self._ends[(end - 1) % self.rows] = _ENDS[chunk.end]
        if chunk.end != "terminated":
            after, (_, store, width) = end % self.rows, self._stores[self._observation]
            final = memoryview(chunk.columns[FINAL_OBSERVATION]).cast("B")
            store[after * width : (after + 1) * width] = final
            self._is_step[after] = False
            end += 1
        self.head = end
        self.num_steps += chunk.steps
        version = chunk.lineage, chunk.version
        self.chunks.append(Placed(begin, end, chunk.steps, chunk.env, version, at))

    def pop(self) -> Placed:
        """Forget the oldest chunk."""
        oldest = self.chunks.popleft()
        self.tail = oldest.end
        self.num_steps -= oldest.steps
        return oldest

    def clear(self, placed: Placed) -> Placed:
        """Remove the steps of a chunk before its turn; its rows stay taken until then."""
        for place, _ in self.spans(placed.begin, placed.end):
            self._is_step[place] = False
        self.num_steps -= placed.steps
        return placed._replace(steps=0)

    def hold(self, chunks: Sequence[Placed]) -> None:
        """These are what is held, without the oldest that have no steps left."""
        self.chunks = deque(chunks)
        while self.chunks and not self.chunks[0].steps:
            self.pop()

    def spans(self, begin: int, end: int) -> Iterator[tuple[slice, slice]]:
        """Where positions lie: slots, and which of the positions; two parts where they go round the end."""
        slot, count = begin % self.rows, end - begin
        first = min(count, self.rows - slot)
        yield slice(slot, slot + first), slice(0, first)
        if first < count:
            yield slice(0, count - first), slice(first, count)

    def generations(self, slots: Ints) -> Ints:
        """Those of what lies there."""
        generation, slot = divmod(self.head, self.rows)
        return generation - (slots >= slot)

    def alive(self, slots: Ints, generations: Ints) -> npt.NDArray[np.bool_]:
        """Whether a slot holds the step of that generation; slots that no ring has hold none."""
        # As unsigned numbers those below 0 are the largest, so one comparison checks both bounds.
        after_tail = generations * self.rows
        after_tail += slots
        after_tail -= self.tail
        alive: npt.NDArray[np.bool_] = after_tail.view(np.uint64) < self.head - self.tail
        alive &= slots.view(np.uint64) < self.rows
        alive &= self.has_step(slots)
        return alive

    def has_step(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Whether what lies in a slot is a step, rather than an observation alone."""
        return self._is_step.take(slots, mode="clip")

    def read(self, slots: Ints) -> dict[str, Array]:
        """All columns of some steps, with the observation after each.

        After a step that terminated there is none: its own observation stands there.
        """
        ends = self._ends.take(slots)
        terminated = ends == _TERMINATED
        # Both in one block: two of their size go back to the system after each batch, and come as new pages.
        both = self._observations.take(np.concatenate([slots, slots + ~terminated]), axis=0, mode="wrap")
        found: dict[str, Array] = {name: column.take(slots, axis=0) for name, column in self._columns.items()}
        return found | {
            _OBSERVATION: both[: len(slots)],
            f"next_{_OBSERVATION}": both[len(slots) :],
            "terminated": terminated,
            "truncated": ends == _TRUNCATED,
        }

    def versions(self, slots: Ints) -> tuple[Ints, Ints]:
        """Lineage and number of the policy that acted, of each."""
        return self._lineages.take(slots), self._numbers.take(slots)
