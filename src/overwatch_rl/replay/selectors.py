"""Which steps of a ring are drawn: uniform, or in proportion to a priority.

Owns the sum tree and the two kinds of draw. Rules: batches only, each a few calls of numpy; a slot without a
step in it is never drawn; an update of priorities touches the leaves alone, the sums above them are made
when something is drawn. Must not know what a step holds.

Source: Schaul et al. 2016, "Prioritized experience replay": the proportional variant, P(i) = p_i^alpha / sum,
p_i = priority + epsilon, a draw from each of n equal parts of the sum; weights (N P(i))^-beta, divided by the
largest of the batch. A step that is new has the largest priority seen so far.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Slots: TypeAlias = NDArray[np.int64]

WIDTH: Final = 16
"""Children of a node."""
_SHIFT: Final = 4
"""Its logarithm to the base 2."""
MOST_ROOTS: Final = 1024
"""Nodes of the highest level, which are looked through by their cumulative sum."""
MOST_PRIORITY: Final = 1e30
"""Above it sums lose the small ones."""
_ONES: Final = np.ones(WIDTH)
_CUMULATIVE: Final = np.triu(np.ones((WIDTH, WIDTH)))


class SumTree:
    """Numbers of 0 and above by slot, drawn in proportion; a draw reads `WIDTH` numbers of each level.

    A product with ones is numpy's fastest sum over such short rows, and with a triangle of ones its fastest
    cumulative sum.
    """

    def __init__(self, size: int) -> None:
        self.levels = [np.zeros((-(-size // WIDTH), WIDTH))]
        """From the leaves up, a row the children of one node; the highest has few enough rows."""
        while len(self.levels[-1]) > MOST_ROOTS:
            self.levels.append(np.zeros((-(-len(self.levels[-1]) // WIDTH), WIDTH)))
        self._leaves = self.levels[0].reshape(-1)
        self._roots = np.zeros(len(self.levels[-1]))
        self._stale: list[Slots] = []
        """Nodes right above leaves that have changed since their sums were made."""
        self._num_stale = 0

    def put(self, slots: Slots, values: NDArray[np.float64]) -> None:
        """Set some; of a slot that comes twice the last counts."""
        self._leaves[slots] = values
        self._note(slots >> _SHIFT)

    def fill(self, begin: int, end: int, value: float) -> None:
        """Set slots `begin` to `end`, the last not among them."""
        self._leaves[begin:end] = value
        self._note(np.arange(begin // WIDTH, (end - 1) // WIDTH + 1))

    def at(self, slots: Slots) -> NDArray[np.float64]:
        """The numbers of some slots."""
        return self._leaves.take(slots)

    def total(self) -> float:
        """The sum of all."""
        self._refresh()
        return float(self._roots.sum())

    def draw(self, count: int, random: np.random.Generator) -> Slots:
        """So many slots, one from each of `count` equal parts of the sum, which is above 0."""
        self._refresh()
        slots = self._descend((np.arange(count) + random.random(count)) * (self._roots.sum() / count))
        # By rounding a draw may fall past the last number of a node, to a slot that has none.
        while not (found := self._leaves.take(slots) > 0.0).all():
            again = np.flatnonzero(~found)
            slots[again] = self._descend(random.random(len(again)) * self._roots.sum())
        return slots

    def _descend(self, at: NDArray[np.float64]) -> Slots:
        """The slots in which places along the sum lie."""
        sums = self._roots.cumsum()
        node = np.minimum(sums.searchsorted(at, "right"), len(sums) - 1)
        at = at - (sums.take(node) - self._roots.take(node))
        row = np.arange(0, len(at) * WIDTH, WIDTH)
        for level in reversed(self.levels):
            children = level.take(node, axis=0)
            sums = children @ _CUMULATIVE
            child = (sums > at[:, None]).argmax(axis=1)
            flat = row + child
            at -= sums.take(flat) - children.take(flat)
            node = node * WIDTH + child
        return node

    def _note(self, nodes: Slots) -> None:
        self._num_stale += len(nodes)
        if self._num_stale > len(self.levels[0]):
            self._stale = []  # all sums are made again
        else:
            self._stale.append(nodes)

    def _refresh(self) -> None:
        """Make the sums above what has changed."""
        if not self._num_stale:
            return
        is_whole = self._num_stale > len(self.levels[0])
        nodes = np.arange(len(self.levels[0])) if is_whole else np.concatenate(self._stale)
        for level, above in zip(self.levels, [*self.levels[1:], self._roots], strict=True):
            above.reshape(-1)[nodes] = level.take(nodes, axis=0) @ _ONES
            nodes = np.arange(-(-len(level) // WIDTH)) if is_whole else nodes // WIDTH
        self._stale, self._num_stale = [], 0


class Occupied(Protocol):
    """A ring, as far as a selector goes."""

    rows: int
    tail: int
    """Position of the oldest row; positions only grow, and a row's slot is its position modulo `rows`."""
    head: int
    """Position after the newest row."""
    num_steps: int
    """Rows that hold a step; the others were removed before their turn."""

    def has_step(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether what lies in a slot was not removed."""
        ...


class Selector(Protocol):
    """Draws slots of one ring, which holds a step at least."""

    def wrote(self, begin: int, end: int, *, is_step: bool) -> None:
        """Slots `begin` to `end` hold new steps now, or, without `is_step`, none."""
        ...

    def draw(self, count: int, random: np.random.Generator) -> Slots:
        """Slots with a step each; the same one may come twice."""
        ...

    def update(self, slots: Slots, priorities: NDArray[np.float64]) -> None:
        """Take checked priorities."""
        ...

    def weights(self, slots: Slots, beta: float) -> NDArray[np.float32]:
        """How much each of a drawn batch counts, over the largest of the batch."""
        ...


def checked(priorities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise `ValueError` for a priority that is none."""
    # Written so that a NaN fails too.
    wrong = priorities[~((priorities >= 0.0) & (priorities <= MOST_PRIORITY))]
    if len(wrong):
        raise ValueError(f"a priority is {wrong[0]}; use 0 to {MOST_PRIORITY:g}")
    return priorities


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """How a priority becomes a share."""

    alpha: float = 0.6
    """0 draws uniformly, 1 in proportion."""
    epsilon: float = 1e-6
    """Added to each, so that a step of priority 0 is drawn again some day."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha is {self.alpha}; use 0 to 1")
        if not 0.0 < self.epsilon <= 1.0:
            raise ValueError(f"epsilon is {self.epsilon}; use a number above 0, up to 1")


class Uniform:
    """Each step alike."""

    def __init__(self, ring: Occupied, _: Priorities) -> None:
        self._ring = ring

    def wrote(self, begin: int, end: int, *, is_step: bool) -> None:
        """Nothing: the ring knows which rows it holds."""

    def draw(self, count: int, random: np.random.Generator) -> Slots:
        """Rows between tail and head, of which those that were removed are left out."""
        ring, held = self._ring, self._ring.head - self._ring.tail
        if ring.num_steps < held:
            rows = np.arange(ring.tail, ring.head) % ring.rows
            return random.choice(rows[ring.has_step(rows)], count)
        # Faster than whole numbers from the generator, and even to 2^-53 of the rows.
        slots = (random.random(count) * held).astype(np.int64)
        slots += ring.tail
        slots %= ring.rows
        return slots

    def update(self, slots: Slots, priorities: NDArray[np.float64]) -> None:
        """Nothing: there are none."""

    def weights(self, slots: Slots, beta: float) -> NDArray[np.float32]:  # noqa: ARG002
        """All count alike."""
        return np.ones(len(slots), np.float32)


class Prioritised:
    """Steps in proportion to priority^alpha."""

    def __init__(self, ring: Occupied, config: Priorities) -> None:
        self.tree = SumTree(ring.rows)
        self._config = config
        self._largest = (1.0 + config.epsilon) ** config.alpha

    def wrote(self, begin: int, end: int, *, is_step: bool) -> None:
        """What is new has the largest priority so far, what holds no step has none."""
        self.tree.fill(begin, end, self._largest if is_step else 0.0)

    def draw(self, count: int, random: np.random.Generator) -> Slots:
        """In proportion."""
        return self.tree.draw(count, random)

    def update(self, slots: Slots, priorities: NDArray[np.float64]) -> None:
        """Take new priorities, of slots that hold a step."""
        if not len(slots):
            return
        largest = float(np.maximum.reduce(priorities))
        config = self._config
        self.tree.put(slots, (priorities + config.epsilon) ** config.alpha)
        self._largest = max(self._largest, (largest + config.epsilon) ** config.alpha)

    def weights(self, slots: Slots, beta: float) -> NDArray[np.float32]:
        """Against the bias of drawing some more often: all with `beta` 1, none with 0."""
        shares = self.tree.at(slots)
        # (N P)^-beta over its largest: N and the sum fall out.
        weights: NDArray[np.float32] = ((shares / shares.min()) ** -beta).astype(np.float32)
        return weights


SELECTORS: Final[dict[str, Callable[[Occupied, Priorities], Selector]]] = {
    "uniform": Uniform,
    "prioritised": Prioritised,
}
"""Name to what makes one for a ring."""
