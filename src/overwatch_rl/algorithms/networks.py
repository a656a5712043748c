"""Networks: from observations to what describes an action, and a value. One row of `NETWORKS` each.

Rules: the first operation turns the world's compact observations into what the network computes with; the
last layers compute in fp32 whatever the precision around them, as rounded logits would make a policy another
one with each size of batch; that of the value is named `value`. Must not know
actions, losses or worlds.

Shape letters as in `types`: B rows, S the shape of an observation, L outputs.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast

import torch
from torch import Tensor, nn

from overwatch_rl.types import ObservationSpec

HIDDEN: Final = 64
CHANNELS: Final = (32, 64, 64)
WIDTH: Final = 512
_VALUE_GAIN: Final = 1.0
_POLICY_GAIN: Final = 0.01


class Network(Protocol):
    """What an algorithm needs of a network, beside that it is a module."""

    value: nn.Linear
    """The last layer of the value."""

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B, in the value's own scale."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that is learned."""
        ...


class Mlp(nn.Module):
    """Two tanh networks of two layers: one for the outputs, one for the value."""

    def __init__(self, spec: ObservationSpec, num_outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encode = Encoder(spec)
        width = self.encode.num_features
        self.actor = nn.Sequential(
            *_hidden(width, generator), _linear(HIDDEN, num_outputs, generator, _POLICY_GAIN)
        )
        self.critic = nn.Sequential(*_hidden(width, generator))
        self.value = _linear(HIDDEN, 1, generator, _VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B."""
        flat = self.encode(features).flatten(1)
        *hidden, last = self.actor
        found = flat
        for layer in hidden:
            found = layer(found)
        return _fp32(last, found), _fp32(self.value, self.critic(flat)).squeeze(-1)


class Conv(nn.Module):
    """Three 3 x 3 convolutions and a layer of 512, shared by the outputs and the value."""

    def __init__(self, spec: ObservationSpec, num_outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encode = Encoder(spec)
        if len(self.encode.shape) != 3:
            raise ValueError(
                f"network 'conv' needs a grid of codes or channels x rows x columns, not {spec.shape}; "
                "use 'mlp'"
            )
        channels, rows, columns = self.encode.shape
        layers: list[nn.Module] = []
        for width in CHANNELS:
            layers += [_started(nn.Conv2d(channels, width, 3, padding=1), generator, 2**0.5), nn.ReLU()]
            channels = width
        self.body = nn.Sequential(*layers)
        self.hidden = _linear(channels * rows * columns, WIDTH, generator, 2**0.5)
        self.actor = _linear(WIDTH, num_outputs, generator, _POLICY_GAIN)
        self.value = _linear(WIDTH, 1, generator, _VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B."""
        hidden = torch.relu(self.hidden(self.body(self.encode(features)).flatten(1)))
        return _fp32(self.actor, hidden), _fp32(self.value, hidden).squeeze(-1)


class Encoder(nn.Module):
    """The first operation: codes to channels by a table, bytes to 0..1, everything to floats."""

    def __init__(self, spec: ObservationSpec) -> None:
        super().__init__()
        self.layout = torch.contiguous_format
        """How images lie in memory; a vector has one way only."""
        self._is_code = bool(spec.codes)
        self._scale = 1.0 if spec.dtype != torch.uint8 or self._is_code else 1.0 / 255.0
        self.table: Tensor
        self.register_buffer("table", torch.tensor(spec.codes or ((0.0,),)), persistent=False)
        channels = len(spec.codes[0]) if spec.codes else 0
        self.shape = (channels, *spec.shape) if self._is_code else spec.shape
        """Of what one observation becomes: channels first."""

    @property
    def num_features(self) -> int:
        """Numbers of one observation."""
        return int(torch.Size(self.shape).numel())

    def forward(self, features: Tensor) -> Tensor:
        """B channels x rows x columns in the layout that was chosen; else B S."""
        if self._is_code:
            found = self.table[features.int()].movedim(-1, 1)
        else:
            found = features.float() * self._scale if self._scale != 1.0 else features.float()
        return found.contiguous(memory_format=self.layout) if found.dim() == 4 else found


def action_values(
    spec: ObservationSpec, hidden: int, actions: int, generator: torch.Generator
) -> nn.Sequential:
    """From B S to a value of each action, by two layers; weights begin as torch's own, from the generator."""
    encode = Encoder(spec)
    made = nn.Sequential(
        encode, nn.Flatten(), nn.Linear(encode.num_features, hidden), nn.ReLU(),
        nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions),
    )  # fmt: skip
    for layer in made:
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return made


def _fp32(layer: nn.Module, hidden: Tensor) -> Tensor:
    with torch.autocast(hidden.device.type if hidden.device.type != "meta" else "cpu", enabled=False):
        found: Tensor = layer(hidden.float())
        return found


def _hidden(width: int, generator: torch.Generator) -> list[nn.Module]:
    return [
        _linear(width, HIDDEN, generator, 2**0.5), nn.Tanh(),
        _linear(HIDDEN, HIDDEN, generator, 2**0.5), nn.Tanh(),
    ]  # fmt: skip


def _linear(width_in: int, width_out: int, generator: torch.Generator, gain: float) -> nn.Linear:
    return cast("nn.Linear", _started(nn.Linear(width_in, width_out), generator, gain))


def _started(layer: nn.Linear | nn.Conv2d, generator: torch.Generator, gain: float) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


NETWORKS: Final[dict[str, Callable[[ObservationSpec, int, torch.Generator], nn.Module]]] = {
    "mlp": Mlp,
    "conv": Conv,
}
"""Name to what makes one, on the CPU, from the observation, the number of outputs and a generator."""


def network(name: str, spec: ObservationSpec, num_outputs: int, generator: torch.Generator) -> nn.Module:
    """The network called `name`; raises `ValueError` when there is none or it does not fit."""
    made = NETWORKS.get(name)
    if made is None:
        raise ValueError(f"network {name!r} does not exist; use one of {', '.join(sorted(NETWORKS))}")
    return made(spec, num_outputs, generator)
