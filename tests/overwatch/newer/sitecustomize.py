"""Makes this Python add floats as those from 3.12 on do, with what is lost at each step added at the end."""

import builtins
import math
from collections.abc import Iterable

_before = builtins.sum


def _sum(values: Iterable[float], /, start: float = 0) -> float:
    reported = list(values)
    total = _before(reported, start)
    if isinstance(total, float) and math.isfinite(total):
        return math.fsum([start, *reported])
    return total


builtins.sum = _sum
