"""Line charts of braille dots: two samples a cell across, four levels a cell down. Pure; knows no metric.

`to_ascii` draws a star for each cell that has a dot.
"""

import math
from collections.abc import Sequence
from typing import Final

_BLANK: Final = 0x2800
NO_DOT: Final = chr(_BLANK)
"""A cell without a dot."""
_DOTS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of the left and the right column, from the lowest dot up."""


def scale(values: Sequence[float | None], *also: float | None) -> tuple[float, float]:
    """Lowest and highest of the finite values and of what else has to be in sight; never the same."""
    finite = [one for one in (*values, *also) if one is not None and math.isfinite(one)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    least = 0.05 * max(abs(low), abs(high)) or 1e-9
    if high - low < least:
        middle = (low + high) / 2
        return middle - least / 2, middle + least / 2
    return low, high


def braille(
    values: Sequence[float | None], width: int, height: int, limits: tuple[float, float]
) -> list[str]:
    """`height` lines of `width` cells, newest value at the right; a gap where a value is missing.

    Values beyond the limits are drawn at their edge. Neighbours are joined by a vertical stroke.
    """
    shown = values[-2 * width :]
    columns: list[float | None] = [*[None] * (2 * width - len(shown)), *shown]
    cells = [[0] * width for _ in range(height)]
    before: int | None = None
    for x, value in enumerate(columns):
        level = None if value is None or not math.isfinite(value) else _level(value, height, limits)
        if level is not None:
            way = 0 if before is None or before == level else 1 if level > before else -1
            first = level if before is None else before + way
            for dot in range(min(first, level), max(first, level) + 1):
                cells[height - 1 - dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
        before = level
    return ["".join(chr(_BLANK + bits) for bits in row) for row in cells]


def _level(value: float, height: int, limits: tuple[float, float]) -> int:
    low, high = limits
    share = (value - low) / (high - low)
    return min(4 * height - 1, max(0, round(share * (4 * height - 1))))
