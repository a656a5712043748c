"""Selectors of sequences: which queued chunks are leased together, and in which order.

Owns the table `ORDERS`. A unit is what is leased or removed whole. Rules: units leave in the order of the
last chunk of each; one that comes back takes its old place. Must not know leases, payloads or time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from overwatch_rl.replay.operations import Item

Unit: TypeAlias = tuple[int, ...]
"""Ids of chunks, rising."""


class Grouping(Protocol):
    """What makes chunks one unit."""

    def add(self, item: Item) -> Unit | None:
        """Take the next chunk; the unit that it completes."""
        ...

    def broken_by(self, item: Item) -> Unit:
        """Chunks that can never be completed once this chunk comes, itself among them."""
        ...

    def remove(self, items: frozenset[int]) -> None:
        """Forget chunks that are not in a unit yet."""
        ...

    def waiting(self) -> Iterable[Unit]:
        """Chunks that are not in a unit yet, by what they wait for together."""
        ...


class Single:
    """Each chunk is a unit: first in, first out."""

    def add(self, item: Item) -> Unit | None:
        """It is complete."""
        return (item.id,)

    def broken_by(self, item: Item) -> Unit:  # noqa: ARG002 the protocol's
        """No chunk needs another."""
        return ()

    def remove(self, items: frozenset[int]) -> None:
        """None wait."""

    def waiting(self) -> Iterable[Unit]:
        """None wait."""
        return ()


@dataclass(slots=True)
class _Open:
    """A trajectory that goes on."""

    episode: int
    next_step: int
    items: list[int]


@dataclass(slots=True)
class Trajectories:
    """A unit is a whole episode of an environment, from its step 0 to its end.

    Chunks of one environment come in order. One that does not go on where the last one ended begins a new
    episode, and what was open is incomplete for ever, as is what does not begin at step 0.
    """

    _open: dict[tuple[str, str], _Open] = field(default_factory=dict)

    def add(self, item: Item) -> Unit | None:
        """Append it to its episode."""
        key = (item.run, item.env)
        if item.first_step == 0 or key not in self._open:
            self._open[key] = _Open(item.episode, item.first_step, [])
        episode = self._open[key]
        episode.items.append(item.id)
        episode.next_step = item.first_step + item.steps
        if item.end == "cut":
            return None
        del self._open[key]
        return tuple(episode.items)

    def broken_by(self, item: Item) -> Unit:
        """The open episode where this one is not its next chunk, and this one where it has no beginning."""
        found = self._open.get((item.run, item.env))
        if found is not None and (found.episode, found.next_step) == (item.episode, item.first_step):
            return ()
        old = () if found is None else tuple(found.items)
        return old if item.first_step == 0 else (*old, item.id)

    def remove(self, items: frozenset[int]) -> None:
        """Forget episodes that lose a chunk."""
        self._open = {key: found for key, found in self._open.items() if items.isdisjoint(found.items)}

    def waiting(self) -> Iterable[Unit]:
        """The open episodes."""
        return [tuple(found.items) for found in self._open.values()]


ORDERS: Final[dict[str, Callable[[], Grouping]]] = {"fifo": Single, "trajectories": Trajectories}
"""Selectors of sequences by name."""


@dataclass(slots=True)
class Queue:
    """The chunks of a table, in units that are queued or leased."""

    grouping: Grouping
    units: deque[Unit] = field(default_factory=deque)
    """Complete and queued, the next one first."""
    _leased: dict[int, Unit] = field(default_factory=dict)
    """By the last chunk of each."""

    def add(self, item: Item) -> None:
        """A chunk was accepted."""
        unit = self.grouping.add(item)
        if unit is not None:
            self.units.append(unit)

    def all(self) -> Iterator[Unit]:
        """What is not leased, in order; last what is not complete."""
        yield from self.units
        yield from self.grouping.waiting()

    def everything(self) -> Iterator[Unit]:
        """What is not leased, and what is."""
        yield from self.all()
        yield from self._leased.values()

    def lease(self, items: Iterable[int]) -> None:
        """Units were leased, as a rule the first ones."""
        taken = set(items)
        while self.units and self.units[0][-1] in taken:
            unit = self.units.popleft()
            self._leased[unit[-1]] = unit
            taken.difference_update(unit)
        if taken:
            self._leased |= {unit[-1]: unit for unit in self.units if unit[-1] in taken}
            self.units = deque(unit for unit in self.units if unit[-1] not in taken)

    def put_back(self, items: Iterable[int]) -> None:
        """Units are queued again, each at its place."""
        units = [self._leased.pop(item) for item in items if item in self._leased]
        self.units = deque(sorted((*units, *self.units), key=lambda unit: unit[-1]))

    def used(self, items: Iterable[int]) -> None:
        """Leased units are gone."""
        for item in items:
            self._leased.pop(item, None)

    def remove(self, items: Iterable[int]) -> None:
        """Chunks that are not leased are gone; so is what they were to be a unit of."""
        gone = frozenset(items)
        while self.units and self.units[0][-1] in gone:
            self.units.popleft()
        self.units = deque(unit for unit in self.units if gone.isdisjoint(unit))
        self.grouping.remove(gone)
