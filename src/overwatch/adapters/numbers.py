"""What a library logs in one call, as numbers of an update.

Rules: a name that the library's table has fills its row, in the row's unit; a name of the catalogue that the
table does not leave out is that of `run.update`. Every other number is custom, under its own name. What is no
single number is left out, and named once in the log; an array or a tensor of one element is a number, on
whatever device. Must not know a library's classes.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from numbers import Real
from typing import Any, Final, NamedTuple

from overwatch.catalog import CUSTOM_PREFIX, Library, Scope, meaning, recognise

log: Final = logging.getLogger("overwatch.adapters")

_OF_ANY_MODEL: Final = frozenset({Library.LIGHTNING, Library.TRANSFORMERS})
"""What these train need not be a policy: the KL of an autoencoder is none of the catalogue's."""


def scalar(value: object) -> float | None:
    """A number, or the only element of an array or a tensor; `None` for all else.

    A whole number that no float holds is infinite, as it is where a file has it with an exponent.
    """
    if type(value) is float:
        return value
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


def number_of(name: str, value: object) -> float | None:
    """A number, as `scalar` has it; what is none is named in the log, once a name."""
    number = scalar(value)
    if number is None and value is not None:
        _log_left_out(name, type(value).__name__)
    return number


@lru_cache(256)
def _log_left_out(name: str, kind: str) -> None:
    log.warning("%r is a %s, no single number: it is left out, each time", name, kind)


def flat(values: Mapping[str, Any], joint: str, before: str = "") -> Iterator[tuple[str, Any]]:
    """Values within mappings, by names that are joined."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, joint, f"{before}{key}{joint}")
        else:
            yield f"{before}{key}", value


def numbers(logged: Mapping[str, Any], library: Library) -> dict[str, float]:
    """The numbers of one call, as `run.update` takes them: by row that the library means, else by name.

    Of several names of a row the library's comes first; the others are custom.
    """
    values = {
        name: number for name, value in logged.items() if (number := number_of(name, value)) is not None
    }
    keys = {name: _key(name, library) for name in values}
    found: dict[str, float] = {}
    for name in sorted(values, key=lambda name: keys[name].rank):
        key, scale, _ = keys[name]
        if key in found:
            key, scale = f"{CUSTOM_PREFIX}{name}", 1.0
        found[key] = values[name] * scale
    return found


class _Key(NamedTuple):
    name: str
    """As `run.update` takes it."""
    scale: float
    rank: int
    """0 of the library's own table, 1 of the catalogue, 2 of neither."""


@lru_cache(8192)
def _key(name: str, library: Library) -> _Key:
    row = recognise(name, library)
    if row is not None:
        return _Key(row[0].short, row[1], 0)
    if library not in _OF_ANY_MODEL and meaning(name, Scope.POLICY, library=library) is not None:
        return _Key(name, 1.0, 1)
    return _Key(f"{CUSTOM_PREFIX}{name}", 1.0, 2)
