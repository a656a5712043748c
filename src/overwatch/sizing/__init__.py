"""How large a fleet is on paper: what trainers, collectors, network, disks and Prometheus need for a load.

Owns the load's shape, the units that were measured of real runs, and the sums over both. Every unit is a
linear cost: so much for nothing, for a run, a rank, a window of a tenth of a second, an env in it. Pure, but
for the file of units that comes with the package. Must not know collectors, configurations or machines.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

import msgspec

WINDOW_HZ: Final = 10.0
"""What the SDK sends of one subject in a second at most: it folds what comes within a tenth of a second."""
SEND_HZ: Final = 10 / 3
"""Requests of a rank in a second at most."""
MIB: Final = 1 << 20


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained at once."""

    runs: int = 1
    ranks: int = 1
    """Trainer processes of a run, a GPU each."""
    envs: int = 64
    """Of each rank."""
    hz: float = 10.0
    """Updates, and steps of all envs, of each rank in a second."""

    def features(self) -> dict[str, float]:
        """How many of each there are that a unit counts."""
        ranks, windows = self.runs * self.ranks, min(self.hz, WINDOW_HZ)
        return {
            "one": 1.0,
            "run": float(self.runs),
            "rank": float(ranks),
            "env": float(ranks * self.envs),
            "request": ranks * min(self.hz, SEND_HZ),
            "window": ranks * windows,
            "env_window": ranks * windows * self.envs,
            "call": ranks * self.hz,
            "env_call": ranks * self.hz * self.envs,
        }


UNITS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "network_bytes": ("rank", "request", "window", "env_window"),
        "records": ("rank", "window"),
        "points": ("rank",),
        "journal_bytes": ("rank", "request", "window", "env_window"),
        "recording_bytes": ("one", "rank", "request", "window", "env_window"),
        "snapshot_bytes": ("run", "rank", "env"),
        "collector_cores": ("one", "run", "request", "window", "env_window"),
        "collector_mib": ("one", "rank", "env"),
        "series": ("one", "run", "rank"),
        "trainer_cores": ("call", "env_call"),
        "exporter_cores": ("rank", "window", "env_window"),
        "exporter_mib": ("one", "rank"),
    }
)
"""What is measured, and which features it grows with."""


class Units(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    taken: str
    """When, on what, beside how much other work."""
    each: dict[str, dict[str, float]]
    """By resource and feature."""


_units: Final = msgspec.json.Decoder(Units).decode


@cache
def units() -> Units:
    """Those that come with the package."""
    return _units((files(__package__) / "measured.json").read_bytes())


def cost(resource: str, load: Load, measured: Units) -> float:
    """How much of a resource a load takes."""
    features = load.features()
    return sum(amount * features[feature] for feature, amount in measured.each[resource].items())
