"""The registries of blueprints: which branches a policy may grow on each kind of host.

They differ in size, so in what they gain and in the rent they cost. The last of each registry does nothing;
no policy may choose it. Must not know hosts or the lifecycle.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One kind of branch, as policies and views know it."""

    id: str
    code: str
    """Two letters, unique in the registry."""

    @property
    def is_noop(self) -> bool:
        """Whether it does nothing and may never be chosen."""
        return self.id == NOOP


@dataclass(frozen=True, slots=True, kw_only=True)
class Units(Blueprint):
    """A branch of MLP hosts: pixels -> units -> logits."""

    width: int
    """Units between pixels and logits."""
    is_rectified: bool = True
    """Whether the units are ReLU; else the branch is a linear map of rank `width`."""
    margin: int = 0
    """Pixels at each edge of the image that it does not see."""


NOOP: Final = "noop"

MLP: Final = (
    Units(id="mlp_small", code="ms", width=6),
    Units(id="mlp_wide", code="mw", width=12),
    Units(id="linear", code="li", width=4, is_rectified=False),
    Units(id="mlp_centre", code="mc", width=12, margin=1),
    Units(id=NOOP, code="no", width=0),
)

CNN: Final = (
    Blueprint(id="norm", code="nm"),
    Blueprint(id="attention", code="at"),
    Blueprint(id="conv_small", code="cs"),
    Blueprint(id="bottleneck", code="bn"),
    Blueprint(id="depthwise", code="dw"),
    Blueprint(id="conv_light", code="cl"),
    Blueprint(id="conv_heavy", code="ch"),
    Blueprint(id=NOOP, code="no"),
)

BLUEPRINTS: Final[dict[str, tuple[Blueprint, ...]]] = {"mlp": MLP, "cnn": CNN}
"""By kind of host, in order of their number."""
