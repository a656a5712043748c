"""What a simulated run is: its size, length, seed and faults, validated once; and its random numbers.

Random numbers are uniform ones and sums of them, the same on every machine. Each part of a run has a stream
of its own, so that what happens in one does not shift another. Must not know what happens in the run.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from overwatch.catalog import Scope, find
from overwatch.simulate.faults import Planned

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

MAX_ENVS: Final = 65_536
MAX_SLOTS: Final = 1 << 20
"""Most (env, slot) pairs of one run."""
MAX_NAMES: Final = 64
"""Most lanes, and most slots in an env."""
SECOND: Final = 1_000_000_000
_SPREAD: Final = 3.0**0.5
"""Four uniform numbers add up to a variance of 1/3; this makes it 1."""


class SettingsError(ValueError):
    """Settings that make no run; the message names the value and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One simulated run."""

    gpus: int = 2
    """Lanes, from 1."""
    envs: int = 32
    """Envs on each lane, from 1."""
    slots: int = 6
    """Slots in each env; 0 is a run without seeds."""
    rate_hz: float = 10.0
    """Env steps a second, from 0.1 to 1,000."""
    seconds: int = 60
    """Length of the run."""
    seed: int = 0
    """Same seed and settings, same run."""
    faults: tuple[Planned, ...] = ()
    run_id: str = "simulated"

    def __post_init__(self) -> None:
        for name, value, low in (
            ("gpus", self.gpus, 1), ("envs", self.envs, 1), ("slots", self.slots, 0),
            ("seconds", self.seconds, 1), ("seed", self.seed, 0),
        ):  # fmt: skip
            if value < low:
                raise SettingsError(f"{name} is {value}; use {low} or more")
        if not 0.1 <= self.rate_hz <= 1000:
            raise SettingsError(f"rate is {self.rate_hz} Hz; use 0.1 to 1000")
        for name, value in (("gpus", self.gpus), ("slots", self.slots)):
            if value > MAX_NAMES:
                raise SettingsError(f"{name} is {value}; use {MAX_NAMES} or fewer")
        if self.n_envs > MAX_ENVS:
            raise SettingsError(f"{self.gpus} × {self.envs} envs are more than {MAX_ENVS}; use fewer")
        if self.n_envs * self.slots > MAX_SLOTS:
            raise SettingsError(
                f"{self.n_envs} envs × {self.slots} slots are more than {MAX_SLOTS}; use fewer"
            )
        for fault in self.faults:
            if fault.at_s >= self.seconds:
                raise SettingsError(
                    f"fault {fault.name}@{fault.at_s:g} begins after the run's {self.seconds} s; "
                    "begin it earlier or make the run longer"
                )

    @property
    def n_envs(self) -> int:
        """Envs on all lanes together."""
        return self.gpus * self.envs

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Slots by row and column, three in a row."""
        return tuple(f"r{slot // 3}c{slot % 3}" for slot in range(self.slots))

    @property
    def lanes(self) -> tuple[str, ...]:
        """Lane ids."""
        return tuple(f"gpu{lane}" for lane in range(self.gpus))

    def step_ns(self, step: int) -> int:
        """Nanoseconds from the run's start to an env step."""
        return step * 1000 * SECOND // round(self.rate_hz * 1000)

    @property
    def steps(self) -> int:
        """Env steps in the whole run, the one at its start not counted."""
        return self.seconds * round(self.rate_hz * 1000) // 1000

    def steps_in(self, seconds: float) -> int:
        """Env steps in so many seconds, at least one."""
        return max(1, int(seconds * self.rate_hz))


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


def full_name(short: str, scope: Scope) -> str:
    """The name of a row that every catalogue has."""
    row = find(short, scope)
    if row is None:
        raise LookupError(f"the catalogue has no {scope.value} row {short!r}")
    return row.name
