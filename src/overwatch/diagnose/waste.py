"""GPU-seconds in which nothing ran, by what held the lane back meanwhile: what a bound costs. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from overwatch.catalog.bounds import BoundState
from overwatch.diagnose.bounds import Bound
from overwatch.state.machines import Rested

_LABELS: Final = tuple(state.label for state in BoundState)


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """What was wasted so far."""

    by_bound: dict[str, float] = {}
    """GPU-seconds, by the label of the bound."""
    counted: dict[str, float] = {}
    """Of each lane, how much of its rest is in there."""

    def of_all(self) -> dict[str, float]:
        """Every bound there is, 0 where nothing was wasted."""
        return {label: self.by_bound.get(label, 0.0) for label in _LABELS}


def wasted(before: Waste, rested: Mapping[str, Rested], bounds: Mapping[str, Bound]) -> Waste:
    """What was wasted by now: the rest since the last tick goes to the bound that holds now."""
    if all(before.counted.get(lane) == rest.idle_s for lane, rest in rested.items()):
        return before
    by_bound, counted = dict(before.by_bound), dict(before.counted)
    for lane, rest in rested.items():
        if lane in bounds:
            label = BoundState(bounds[lane].state).label
            by_bound[label] = by_bound.get(label, 0.0) + rest.idle_s - counted.get(lane, 0.0)
            counted[lane] = rest.idle_s
    return Waste(by_bound=by_bound, counted=counted)
