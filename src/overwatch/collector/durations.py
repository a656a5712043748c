"""Durations as the OpenTelemetry Collector writes them, e.g. `300ms`, `5s` or `1m30s`.

Must not know what takes so long.
"""

import math
import re
from typing import Final, TypeAlias

Duration: TypeAlias = str | int
"""A number and a unit, any number of times; `0` needs no unit."""

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds(name: str, text: Duration) -> float:
    """A duration in seconds; raises `ValueError` that speaks of `name`.

    >>> seconds("timeout", "1m30s"), seconds("timeout", "300ms"), seconds("timeout", 0)
    (90.0, 0.3, 0.0)
    """
    said = str(text).strip()
    if said == "0":
        return 0.0
    parts = _PART.findall(said)
    if not parts or "".join(number + unit for number, unit in parts) != said:
        raise ValueError(
            f"{name} {said!r} is no duration; write a number and a unit, e.g. 300ms, 5s or 1m30s"
        )
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
