"""What may become of a seed: how long each stage lasts, which gate ends it, and how often that passes.

Pure tables; every move in them is legal by the catalogue. Must not know envs or time.
"""

from typing import Final

import msgspec

from overwatch.catalog import Stage
from overwatch.catalog.stages import Life, of_life

BLUEPRINTS: Final = {
    "conv_small": "cs", "conv_light": "cl", "conv_heavy": "ch", "attention": "at", "bottleneck": "bn",
    "depthwise": "dw",
}  # fmt: skip


GRADIENT_CHECK: Final = "gradient_ratio"
"""The check that looks at a seed's gradient health."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ends."""

    onward: Stage
    seconds: tuple[float, float]
    """Shortest and longest stay."""
    op: str | None = None
    """What the policy does to move on; absent where the stage ends by itself."""
    gate: str | None = None
    passing: float = 1.0
    """Share of the seeds that pass."""
    check: str = ""
    """The check that decides."""
    need: float = 0.0
    """What the check asks for."""
    retry: Stage | None = None
    """Where the policy sends a seed now and then instead of having its gate checked."""


WAYS: Final[dict[Stage, Way]] = {
    Stage.UNKNOWN: Way(onward=Stage.DORMANT, seconds=(2.0, 5.0)),
    Stage.GERMINATED: Way(
        onward=Stage.TRAINING, seconds=(1.0, 3.0), op="ADVANCE", gate="G1", passing=0.995,
        check="seed_health", need=0.5,
    ),
    Stage.TRAINING: Way(
        onward=Stage.BLENDING, seconds=(8.0, 20.0), op="ADVANCE", gate="G2", passing=0.97,
        check=GRADIENT_CHECK, need=0.10,
    ),
    Stage.BLENDING: Way(
        onward=Stage.HOLDING, seconds=(6.0, 15.0), op="ADVANCE", gate="G3", passing=0.99,
        check="alpha_hold", need=1.0,
    ),
    Stage.HOLDING: Way(
        onward=Stage.FOSSILISED, seconds=(4.0, 10.0), op="FOSSILIZE", gate="G5", passing=0.99,
        check="contribution", need=0.01, retry=Stage.BLENDING,
    ),
    Stage.PRUNED: Way(onward=Stage.EMBARGOED, seconds=(1.0, 1.0)),
    Stage.EMBARGOED: Way(onward=Stage.RESETTING, seconds=(5.0, 5.0)),
    Stage.RESETTING: Way(onward=Stage.DORMANT, seconds=(1.0, 1.0)),
}  # fmt: skip
"""Stages that end; the others last until something else ends them."""

RETRYING: Final = 0.06
"""Share of the seeds that are sent back where their way has a retry."""
GROWING: Final = of_life(Life.GROWING)
PAYING: Final = tuple(stage for stage in Stage if stage.facets.pays_rent)
EARLY: Final = GROWING[:-1]
"""Stages that a cull storm culls from."""
