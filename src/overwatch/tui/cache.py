"""What was drawn for a place stays until what it was drawn from changes: a frame costs what changed in it.

For pure functions alone. Equal inputs are found by `==`, which finds the same object at once. Must not know
what is drawn.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MOST: Final = 1024
"""Places that one function remembers; with more of them it begins anew."""


def kept(make: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """Remember the last result for each first argument, the place; inputs come by position."""
    known: dict[K, tuple[tuple[object, ...], T]] = {}

    @wraps(make)
    def again(place: K, /, *inputs: P.args, **named: P.kwargs) -> T:
        last = known.get(place)
        if last is not None and last[0] == inputs:
            return last[1]
        made = make(place, *inputs, **named)
        if len(known) >= _MOST:
            known.clear()
        known[place] = inputs, made
        return made

    return again
