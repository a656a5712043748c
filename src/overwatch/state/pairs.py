"""The proxy return and the true return of a policy side by side, with what was eaten and offered.

Owns the join: a pair is the newest proxy beside the newest true return, each of which came since the pair
before. So a true return that is measured every few updates, or travels in a record of its own, has its
counterpart, and an update without either makes none. Rules: what is not finite did not come; offers are a
draw and no task of their own. Must not know what a finding is.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.catalog.goodhart import FOOD, FOOD_OFFERED, POISON, POISON_OFFERED, PROXY, TRUE
from overwatch.events import Column
from overwatch.state.ring import Ring

WINDOW: Final = 64
"""Newest pairs that are held."""
FIRST: Final = 20
"""First pairs of the task, which show what an untrained policy earned."""
_MOST: Final = 1e100
"""In any unit; products of what is less are numbers."""
_TAKEN: Final = {row.name: row.short for row in (PROXY, TRUE, FOOD, POISON, FOOD_OFFERED, POISON_OFFERED)}


class Pair(msgspec.Struct, frozen=True, array_like=True):
    """Both returns of one update."""

    proxy: float
    true: float
    food: float | None = None
    """Share of food in what was eaten."""
    food_offered: float | None = None
    poison_offered: float | None = None

    @property
    def offered(self) -> float | None:
        """Share of food in what was offered."""
        if self.food_offered is None or self.poison_offered is None:
            return None
        whole = self.food_offered + self.poison_offered
        return self.food_offered / whole if whole > 0 else None


class Pairs(msgspec.Struct, kw_only=True):
    """What is known of both returns together."""

    total: int = 0
    """Pairs of the present task."""
    first: list[Pair] = []
    newest: Ring[Pair] = msgspec.field(default_factory=lambda: Ring(WINDOW))
    waiting: dict[str, float] = {}
    """What came since the newest pair, by short name."""

    def take(self, values: Mapping[str, Column]) -> None:
        """Add what an update reports."""
        for name, column in values.items():
            short = _TAKEN.get(name)
            if short is None:
                continue
            value = column.first() if len(column) else None
            if value is not None and -_MOST <= value <= _MOST:
                self.waiting[short] = value
            else:
                self.waiting.pop(short, None)
        if PROXY.short in self.waiting and TRUE.short in self.waiting:
            self._add(_paired(self.waiting))

    def _add(self, pair: Pair) -> None:
        self.waiting = {}
        self.total += 1
        self.newest.push(pair)
        if len(self.first) < FIRST:
            self.first.append(pair)

    def restart(self) -> None:
        """Forget all pairs, since the task is another one."""
        self.total, self.first, self.newest, self.waiting = 0, [], Ring(WINDOW), {}


def _paired(values: Mapping[str, float]) -> Pair:
    food, poison = values.get(FOOD.short), values.get(POISON.short)
    if food is None and poison is not None:
        food = 1.0 - poison
    offers = values.get(FOOD_OFFERED.short), values.get(POISON_OFFERED.short)
    food_offered, poison_offered = (None if one is None or one < 0 else one for one in offers)
    return Pair(
        values[PROXY.short],
        values[TRUE.short],
        food if food is not None and 0.0 <= food <= 1.0 else None,
        food_offered,
        poison_offered,
    )
