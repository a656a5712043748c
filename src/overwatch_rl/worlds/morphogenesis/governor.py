"""The governor: which hosts are ruined, and must go back to what was kept of them.

Owns the three signs, each of one host alone:

- `nan`: a loss, an accuracy or a gradient is not finite; at once.
- `lobotomy`: after it was good, the host does no better than a guess: its loss is within a tolerance of
  ln(classes), and its accuracy near chance, since a host that is too sure may be right with such a loss.
- `divergence`: the loss is above a limit, above its mean by several standard deviations, and several times
  its mean; three in a row.

Mean and deviation are those of all finite losses of the episode but such a row (Welford 1962). A host that
goes back is judged anew: it is another one, without the seeds that made it good. Rules:
vectorised, nothing read from the device; holds no weights, and does not know what is kept of a host.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

REASONS: Final = ("nan", "lobotomy", "divergence")
"""Why a host was rolled back; the code of a reason is its place, from 1."""
_NAN, _LOBOTOMY, _DIVERGENCE = (REASONS.index(word) + 1 for word in ("nan", "lobotomy", "divergence"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorConfig:
    """When a host counts as ruined. Raises `ValueError` naming the setting."""

    classes: int = 10
    """Classes of the task: a guess has the loss ln(classes)."""
    good: float = 0.6
    """Share of a guess's loss below which a host was good."""
    tolerance: float = 0.065
    """Share of a guess's loss within which a loss is that of a guess."""
    chance: float = 2.0
    """Times the accuracy of a guess up to which an accuracy is near chance."""
    loss: float = 12.0
    """A loss above this may be divergence."""
    deviations: float = 6.0
    """Standard deviations above the mean from which on it is."""
    times: float = 3.0
    """Times the mean from which on it is."""
    in_a_row: int = 3
    """Such losses in a row that are a divergence."""
    known: int = 5
    """Losses from which on mean and deviation are known."""

    def __post_init__(self) -> None:
        for name, least in (("classes", 2), ("in_a_row", 1), ("known", 2)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"governor {name} is {value}; use at least {least}")
        for name in ("good", "tolerance", "chance", "loss", "deviations", "times"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"governor {name} is {value}; use a number above 0")


class Governor:
    """Watches N hosts."""

    def __init__(self, num_hosts: int, config: GovernorConfig, device: str = "cpu") -> None:
        self._config = config
        self._guess = math.log(config.classes)
        with torch.device(device):
            self._count = torch.zeros(num_hosts)  # N float32, usual losses of the episode
            self._mean = torch.zeros(num_hosts)  # N
            self._squares = torch.zeros(num_hosts)  # N, sum of squared differences from the mean
            self._best = torch.full((num_hosts,), torch.inf)  # N, the least loss of the episode
            self._row = torch.zeros(num_hosts, dtype=torch.int64)  # N, losses in a row that may be divergence

    def step(self, loss: Tensor, accuracy: Tensor, is_finite: Tensor) -> Tensor:
        """N uint8: 0 where all is well, else the code of `REASONS`; all of N, `is_finite` of gradients."""
        config = self._config
        finite = is_finite & loss.isfinite() & accuracy.isfinite()
        seen = loss.where(finite, self._guess)
        deviation = (self._squares / self._count.clamp(min=1.0)).sqrt()
        above = (seen > config.loss) & (seen > self._mean + config.deviations * deviation)
        above &= (seen > config.times * self._mean) & (self._count >= config.known) & finite
        self._row = torch.where(above, self._row + 1, 0)
        is_guess = (seen - self._guess).abs() <= config.tolerance * self._guess
        is_guess &= accuracy <= config.chance / config.classes
        lost = finite & is_guess & (self._best < config.good * self._guess)
        code = torch.zeros_like(loss, dtype=torch.uint8)
        for reason, holds in (
            (_DIVERGENCE, self._row >= config.in_a_row),
            (_LOBOTOMY, lost),
            (_NAN, ~finite),
        ):
            code.masked_fill_(holds, reason)
        self._learn(seen, finite & ~above & ~lost)
        self.restart(code > 0)
        return code

    def restart(self, envs: Tensor) -> None:
        """Forget what was seen of the hosts of `envs` (N bool): they are others now."""
        for name, tensor in self._state().items():
            tensor.masked_fill_(envs, math.inf if name == "best" else 0)

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        return {name: tensor.clone() for name, tensor in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Become as it was."""
        for name, tensor in self._state().items():
            tensor.copy_(state[name])

    def _state(self) -> dict[str, Tensor]:
        names = ("count", "mean", "squares", "best", "row")
        return {name: getattr(self, f"_{name}") for name in names}

    def _learn(self, loss: Tensor, usual: Tensor) -> None:
        """Take the losses that are `usual` (N bool) into mean, deviation and best."""
        self._count = self._count + usual.to(self._count.dtype)
        difference = (loss - self._mean).where(usual, 0.0)
        self._mean = self._mean + difference / self._count.clamp(min=1.0)
        self._squares = self._squares + difference * (loss - self._mean).where(usual, 0.0)
        self._best = torch.minimum(self._best, loss.where(usual, torch.inf))
