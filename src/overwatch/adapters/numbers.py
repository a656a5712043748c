"""What a library logs in one call, as numbers of an update.

Rules: a name that the library's table has fills its row, in the row's unit. Every other number is custom,
under its own name. What is no single number is left out; an array or a tensor of one element is a number,
on whatever device. Must not know a library's classes.
"""

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from overwatch.catalog import CUSTOM_PREFIX, Library, recognise


def scalar(value: object) -> float | None:
    """A number, or the only element of an array or a tensor; `None` for all else.

    A whole number that no float holds is infinite, as it is where a file has it with an exponent.
    """
    if isinstance(value, bool | str):
        return None
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return -math.inf if value < 0 else math.inf
    size = getattr(value, "numel", None) or getattr(value, "size", None)
    if (size() if callable(size) else size) != 1 or not hasattr(value, "item"):
        return None
    return scalar(value.item())


def flat(values: Mapping[str, Any], joint: str, before: str = "") -> Iterator[tuple[str, Any]]:
    """Values within mappings, by names that are joined."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, joint, f"{before}{key}{joint}")
        else:
            yield f"{before}{key}", value


def numbers(logged: Mapping[str, Any], library: Library) -> dict[str, float]:
    """The numbers of one call: by short name of the row that the library means, else by custom name."""
    found: dict[str, float] = {}
    for name, value in logged.items():
        number = scalar(value)
        if number is None:
            continue
        meant = recognise(name, library)
        if meant is None or meant[0].short in found:
            found[f"{CUSTOM_PREFIX}{name}"] = number
        else:
            row, scale = meant
            found[row.short] = number * scale
    return found
