"""A ring of steps by column: what a table of steps stores, and where.

Owns rows, positions and which chunk lies where. Rules: a chunk lies in consecutive rows, so the observation
after a step is that of the next row, stored once; that after the last step lies beside the ring, in a place
that is used again. Chunks go whole and oldest first, so what is held is never torn. A position only grows;
its slot is the rest after division by the number of rows, its generation the quotient: both together name one
step for ever. Must not know selectors, requests or time.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from overwatch_rl.replay.chunk import FINAL_OBSERVATION, Array, Bytes, Chunk, Encoding

Ints = npt.NDArray[np.int64]
_OBSERVATION = "observation"
_NEXT, _NOWHERE = -1, -2
"""Where the observation after a step lies, if not beside the ring: in the next row, or it terminated."""
_BESIDE_BYTES = 512
"""What the record of a chunk takes, as measured."""


class Placed(NamedTuple):
    """A chunk in the ring."""

    begin: int
    """Position of its first step."""
    end: int
    """Position after its last one."""
    steps: int
    env: str
    version: tuple[int, int]
    at: int
    """When it was taken, in Unix nanoseconds."""
    final: int
    """Where the observation after it lies; below 0 where it has none."""
    size: int


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
        self.head = self.tail = self.num_steps = self.size = 0
        """Positions, steps, and bytes that all chunks take."""
        self._is_step = np.zeros(rows, np.bool_)
        self._is_truncated = np.zeros(rows, np.bool_)
        self._places = np.zeros(rows, np.int32)
        """Where the observation after a step lies."""
        self._lineages, self._numbers = (np.zeros(rows, np.int64) for _ in range(2))
        stored = [column for column in encoding.columns if column.per_step]
        self._columns = {one.name: np.zeros((rows, *one.shape), one.numpy) for one in stored}
        self._stores = [(one.name, self._columns[one.name].data.cast("B"), one.row_bytes) for one in stored]
        self._observations = self._columns.pop(_OBSERVATION)
        self._finals = self._observations[:0]
        self._free: list[int] = []
        self._row_bytes, self._final_bytes = (
            self.row_bytes(encoding),
            encoding.by_name[_OBSERVATION].row_bytes,
        )
        self.chunks: deque[Placed] = deque()
        """What is held, oldest first; of those that were removed before their turn, 0 steps are left."""

    @staticmethod
    def row_bytes(encoding: Encoding) -> int:
        """What a row takes, with its priority."""
        return encoding.step_bytes + 1 + 1 + 4 + 16 + 9

    def cost(self, steps: int, env: str) -> int:
        """Bytes that a chunk takes at most."""
        return steps * self._row_bytes + self._final_bytes + _BESIDE_BYTES + len(env)

    def write(self, chunk: Chunk, at: int) -> None:
        """Store a checked chunk, for which there is room."""
        begin, end = self.head, self.head + chunk.steps
        for place, part in self.spans(begin, end):
            for name, store, width in self._stores:
                data = memoryview(chunk.columns[name]).cast("B")
                store[place.start * width : place.stop * width] = data[part.start * width : part.stop * width]
            self._is_step[place] = True
            self._is_truncated[place] = False
            self._places[place] = _NEXT
            self._lineages[place] = chunk.lineage
            self._numbers[place] = chunk.version
        last, is_over = (end - 1) % self.rows, chunk.end == "terminated"
        final = _NOWHERE if is_over else self._hold(chunk.columns[FINAL_OBSERVATION])
        self._places[last] = final
        self._is_truncated[last] = chunk.end == "truncated"
        self.head = end
        self.num_steps += chunk.steps
        size = self.cost(chunk.steps, chunk.env)
        self.size += size
        version = chunk.lineage, chunk.version
        self.chunks.append(Placed(begin, end, chunk.steps, chunk.env, version, at, final, size))

    def _hold(self, observation: Bytes) -> int:
        """Store an observation beside the ring; its place."""
        if not self._free:
            held = len(self._finals)
            self._finals = np.resize(
                self._finals, (min(max(64, 2 * held), self.rows), *self._finals.shape[1:])
            )
            self._free.extend(range(len(self._finals) - 1, held - 1, -1))
        place = self._free.pop()
        self._finals[place] = np.frombuffer(observation, self._finals.dtype).reshape(self._finals.shape[1:])
        return place

    def pop(self) -> Placed:
        """Forget the oldest chunk."""
        oldest = self.chunks.popleft()
        self.tail = oldest.end
        self.num_steps -= oldest.steps
        self.size -= oldest.size
        if oldest.final >= 0:
            self._free.append(oldest.final)
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
        """Whether what lies in a slot was not removed."""
        return self._is_step.take(slots, mode="clip")

    def read(self, slots: Ints) -> dict[str, Array]:
        """All columns of some steps, with the observation after each.

        After a step that terminated there is none: its own observation stands there.
        """
        places = self._places.take(slots)
        terminated = places == _NOWHERE
        # Both in one block: two of their size go back to the system after each batch, and come as new pages.
        both = self._observations.take(np.concatenate([slots, slots + ~terminated]), axis=0, mode="wrap")
        beside = (places >= 0).nonzero()[0]
        if len(beside):
            both[len(slots) + beside] = self._finals.take(places[beside], axis=0)
        found: dict[str, Array] = {name: column.take(slots, axis=0) for name, column in self._columns.items()}
        return found | {
            _OBSERVATION: both[: len(slots)],
            f"next_{_OBSERVATION}": both[len(slots) :],
            "terminated": terminated,
            "truncated": self._is_truncated.take(slots),
        }

    def versions(self, slots: Ints) -> tuple[Ints, Ints]:
        """Lineage and number of the policy that acted, of each."""
        return self._lineages.take(slots), self._numbers.take(slots)
