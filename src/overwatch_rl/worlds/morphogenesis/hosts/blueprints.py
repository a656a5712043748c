"""The registry of blueprints: which branches a policy may grow on a host, pixels -> units -> logits.

They differ in size, so in what they gain and in the rent they cost. The last does nothing; no policy may
choose it. Must not know hosts or the lifecycle.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One kind of branch."""

    id: str
    code: str
    """Two letters, unique in the registry."""
    width: int
    """Units between pixels and logits."""
    is_rectified: bool = True
    """Whether the units are ReLU; else the branch is a linear map of rank `width`."""
    margin: int = 0
    """Pixels at each edge of the image that it does not see."""


NOOP: Final = "noop"

MLP: Final = (
    Blueprint(id="mlp_small", code="ms", width=6),
    Blueprint(id="mlp_wide", code="mw", width=12),
    Blueprint(id="linear", code="li", width=4, is_rectified=False),
    Blueprint(id="mlp_centre", code="mc", width=12, margin=1),
    Blueprint(id=NOOP, code="no", width=0),
)
