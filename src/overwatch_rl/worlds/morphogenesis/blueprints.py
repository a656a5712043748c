"""The registry of blueprints: which branches a policy may grow.

A blueprint is a branch beside the host, 64 pixels -> width units -> 10 logits. They differ in size, so in
what they gain and in the rent they cost. Must not know hosts or the lifecycle.
"""

from dataclasses import dataclass
from typing import Final

from overwatch_rl.worlds.morphogenesis.digits import NUM_CLASSES, NUM_PIXELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One kind of branch."""

    id: str
    code: str
    """Two letters, unique in the registry."""
    width: int
    """Units between pixels and logits."""
    rectified: bool
    """Whether the units are ReLU; else the branch is a linear map of rank `width`."""

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""
        return (NUM_PIXELS + 1) * self.width + (self.width + 1) * NUM_CLASSES


BLUEPRINTS: Final[tuple[Blueprint, ...]] = (
    Blueprint(id="mlp_small", code="ms", width=6, rectified=True),
    Blueprint(id="mlp_wide", code="mw", width=12, rectified=True),
    Blueprint(id="linear", code="li", width=4, rectified=False),
)
"""In order of their number; the first is the unit of rent."""

MAX_WIDTH: Final = max(blueprint.width for blueprint in BLUEPRINTS)


def relative_size(blueprint: Blueprint) -> float:
    """Parameters in multiples of the first blueprint's: what rent is charged by."""
    return blueprint.num_parameters / BLUEPRINTS[0].num_parameters
