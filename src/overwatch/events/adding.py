"""Adding floats to the same bits everywhere: from Python 3.12 on, `sum` does it in another way."""

from collections.abc import Iterable


def added(values: Iterable[float]) -> float:
    """The sum from the first to the last, 0.0 of none; infinite where it is too large."""
    total = 0.0
    for value in values:
        total += value
    return total
