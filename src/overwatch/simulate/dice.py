"""Chance that is the same on every machine: uniform numbers and sums of them, nothing else.

Owns the streams of random numbers. Each part of a run has a stream of its own, so that what happens in one
does not shift another. Must not know what is drawn for.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

_SPREAD: Final = 3.0**0.5
"""Four uniform numbers add up to a variance of 1/3; this makes it 1."""


class Dice:
    """One stream, by seed and number."""

    def __init__(self, seed: int, stream: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64([seed, stream]))

    def uniform(self, n: int) -> Floats:
        """Numbers in [0, 1), shape (n,)."""
        return self._generator.random(n)

    def one(self) -> float:
        """One number in [0, 1)."""
        return float(self._generator.random())

    def noise(self, n: int) -> Floats:
        """Numbers around 0 with variance 1, never beyond ±3.47, shape (n,)."""
        spread: Floats = (self._generator.random((n, 4)).sum(axis=1) - 2.0) * _SPREAD
        return spread

    def jitter(self) -> float:
        """One number as of `noise`."""
        return float(self.noise(1)[0])

    def below(self, limit: int) -> int:
        """One whole number in [0, limit)."""
        return int(self._generator.random() * limit)
