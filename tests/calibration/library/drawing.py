"""Everything about a training that is drawn, by a hash of its case: nothing else decides."""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tests.calibration.library.series import Case

T = TypeVar("T")
_TABLES: Final[dict[str, Any]] = msgspec.toml.decode(Path(__file__).with_name("settings.toml").read_bytes())


def settings_of(case: Case) -> dict[str, Any]:
    """What is not drawn: the settings of its algorithm in its world."""
    return copy.deepcopy(_TABLES[case.algorithm][case.world])  # type: ignore[no-any-return]  # a table of TOML


def share(*words: str) -> float:
    """A number from 0 to below 1 for these words."""
    digest = hashlib.sha256("\n".join(words).encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


@dataclass(frozen=True)
class Draw:
    """Settings of one case; what was drawn is noted."""

    case: Case
    noted: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> float:
        """A number from 0 to below 1."""
        return share(self.case.name, name)

    def one(self, name: str, among: Sequence[T]) -> T:
        """One of these."""
        drawn = among[int(self.of(name) * len(among))]
        self.noted[name] = str(drawn)
        return drawn

    def between(self, name: str, low: float, high: float) -> float:
        """A number whose logarithm is uniform."""
        drawn = float(f"{low * (high / low) ** self.of(name):.3g}")
        self.noted[name] = str(drawn)
        return drawn

    @property
    def seed(self) -> int:
        """For the generators of the library that trains."""
        return int(self.of("seed") * (1 << 31))
