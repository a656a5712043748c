"""What a world asks of its host networks, and what they answer.

Rules: the randomness of a host's data, of its first weights and of what is grown come from separate
generators, so growing never changes a host's data. A new branch gives zero, so germinating changes nothing.
Must not know stages, rewards or policies.

Shape letters: N hosts, K slots, M subsets, B blueprints.
"""

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor


class Blend(IntEnum):
    """How a branch z joins h, what it stands beside: h + alpha x term, where the term is 0 for z = 0.

    The terms are linear in alpha and do not depend on each other, so the order of slots does not matter.
    """

    ADD = 0  # z
    MULTIPLY = 1  # h * z, so that h becomes h * (1 + alpha z)
    GATE = 2  # z * sigmoid(z): each output passes by its own gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the branches are connected during one step."""

    alpha: Tensor  # N K float32, share of each branch in its host's output, 0 where not connected
    isolated: Tensor  # N K bool, branches that train beside the host without being part of it
    blueprint: Tensor  # N K int64, -1 where no branch is
    algorithm: Tensor  # N K int64, of `Blend`


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """How training went, in the last of the step's minibatches."""

    loss: Tensor  # N float32, mean cross-entropy
    is_finite: Tensor  # N bool, loss and all gradients of the host and its branches
    health: Tensor  # N K float32, the smaller of branch's and host's gradient per weight over the larger
    ratio: Tensor  # N K float32, the branch's gradient per weight over the host's
    share: Tensor  # N K float32, norm of the branch's gradient over that of its host and all its branches
    # NaN in the last three where no branch learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How well hosts do on all validation images, and what each branch contributes."""

    accuracy: Tensor  # N float32, 0..1; 0 where the loss is not finite
    loss: Tensor  # N float32, mean cross-entropy
    contribution: Tensor  # N K float32, NaN where no branch is
    # in isolation: accuracy if it were added less accuracy; connected: accuracy less accuracy without it
