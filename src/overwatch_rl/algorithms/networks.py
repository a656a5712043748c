"""Networks: from observations to what describes an action, and a value. One row of `NETWORKS` each.

Rules: the first operation turns the world's compact observations into what the network computes with; the
last layers compute in fp32 whatever the precision around them, as rounded logits would make a policy another
one with each size of batch; that of the value is named `value`. A network with memory is `Recurrent` too.
Must not know distributions, losses or worlds.

Shape letters as in `types`: B rows, S the shape of an observation, L outputs, P operations, K slots, T steps,
M memory; W units of a layer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from overwatch_rl.components import component, is_importable
from overwatch_rl.types import ActionSpec, Factored, ObservationSpec, SlotLayout

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

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """Those of the outputs, each with the head of the action that each of its rows is of."""
        ...


@runtime_checkable
class Recurrent(Protocol):
    """What a network with memory has beside: called without it, every row begins an episode."""

    num_memory: int
    """M."""

    def unroll(self, features: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Step by step: T B S, the memory before the first B M, and where an episode begins T B bool.

        Outputs T B L, values T B, and the memory after each step T B M.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large hidden layers are."""

    width: int = HIDDEN
    """Units of each, but of the layer behind convolutions."""
    depth: int = 2
    """How many a body has."""
    activation: str = "tanh"
    """A row of `ACTIVATIONS`; convolutions have ReLU."""

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation is {self.activation!r}; use one of {known}")


class Mlp(nn.Module):
    """Two networks of the same layers, computed as one: for the outputs, and for the value."""

    def __init__(
        self, spec: ObservationSpec, action: ActionSpec, generator: torch.Generator, size: Size
    ) -> None:
        super().__init__()
        self.encode = Encoder(spec)
        width = self.encode.num_features
        actor, choose = _hidden(width, generator, size), Choices(size.width, action, generator)
        both = zip(actor, _hidden(width, generator, size), strict=True)
        self.body = nn.Sequential(*(Pair(*one) if isinstance(one[0], nn.Linear) else one[0] for one in both))
        self.choose = choose
        self.value = _linear(size.width, 1, generator, _VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B."""
        flat = self.encode(features).flatten(1)
        actor, critic = _through(self.body, flat.expand(2, *flat.shape)).unbind()
        return self.choose(actor), _fp32(self.value, critic).squeeze(-1)

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """One, of all heads."""
        return self.choose.last_layers()


class Pair(nn.Module):
    """Two linear layers as one product, from 2 B W to 2 B W: small ones cost their calls."""

    def __init__(self, *layers: Any) -> None:
        """`layers` are linear."""
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers])[:, None])

    def forward(self, both: Tensor) -> Tensor:
        """Each half through its own layer."""
        return torch.baddbmm(self.bias, both, self.weight)


class Conv(nn.Module):
    """Three convolutions and a layer of 512, shared by the outputs and the value."""

    def __init__(
        self, spec: ObservationSpec, action: ActionSpec, generator: torch.Generator, _: Size
    ) -> None:
        super().__init__()
        self.encode = Encoder(spec)
        self.body = _convolved(self.encode.shape, generator)
        self.choose = Choices(WIDTH, action, generator)
        self.value = _linear(WIDTH, 1, generator, _VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B."""
        hidden = self.body(self.encode(features))
        return self.choose(hidden), _fp32(self.value, hidden).squeeze(-1)

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """One, of all heads."""
        return self.choose.last_layers()


class Slots(nn.Module):
    """Two networks, for the outputs and for the value, that encode every slot by the same weights.

    A slot's own choice is scored from its own encoding, so slots that change places change their scores with
    it and nothing else (Zaheer et al. 2017, "Deep sets"). No weight depends on K: what was learned with some
    slots acts with any number of them.
    """

    def __init__(
        self, spec: ObservationSpec, action: ActionSpec, generator: torch.Generator, size: Size
    ) -> None:
        super().__init__()
        layout = _layout_of("slots", spec, action)
        self.encode = Encoder(spec)
        self.actor, self.critic = SlotBody(layout, generator, size), SlotBody(layout, generator, size)
        self.choose = SlotChoices(layout, cast("Factored", action), generator, size)
        self.value = _linear(size.width, 1, generator, _VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B."""
        flat = self.encode(features)
        outputs = self.choose(*self.actor(flat))
        return outputs, _fp32(self.value, self.critic(flat)[0]).squeeze(-1)

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """Of the slot's head, and of all others."""
        return self.choose.last_layers()


class Remembering(nn.Module):
    """One body for outputs and value, and a memory of what it saw in the episode so far.

    The memory is that of a cell with gates (Hochreiter & Schmidhuber 1997, "Long short-term memory"); what it
    gives is added to what the body sees now.
    """

    def __init__(self, *fitting: Any) -> None:
        """`fitting` are the arguments of every network."""
        super().__init__()
        spec, _, generator, _ = fitting
        self.encode = Encoder(spec)
        self.width, self.body = self._body(*fitting)
        self.remember = Memory(self.width, generator)
        self.num_memory = 2 * self.width
        self.choose = self._choose(*fitting)
        self.value = _linear(self.width, 1, generator, _VALUE_GAIN)

    def _body(self, *fitting: Any) -> tuple[int, nn.Module]:
        """Units W, and from the encoded observation to B W."""
        *_, generator, size = fitting
        layers = _hidden(self.encode.num_features, generator, size)
        return size.width, nn.Sequential(nn.Flatten(), *layers)

    def _choose(self, *fitting: Any) -> Any:
        """From B W, and what else the body gives, to outputs."""
        _, action, generator, _ = fitting
        return Choices(self.width, action, generator)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to outputs B L and values B of first steps."""
        nothing = torch.zeros(len(features), self.num_memory, device=features.device)
        begins = torch.zeros(1, len(features), dtype=torch.bool, device=features.device)
        outputs, values, _ = self.unroll(features[None], nothing, begins)
        return outputs[0], values[0]

    def unroll(self, features: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Recurrent.unroll`."""
        steps, rows = begins.shape
        seen = self.body(self.encode(features.flatten(0, 1)))
        seen, *others = seen if isinstance(seen, tuple) else (seen,)
        memories = self.remember(seen.view(steps, rows, -1), memory, begins)
        found = seen + memories[..., : self.width].flatten(0, 1)
        outputs = self.choose(found, *others)
        return outputs.view(steps, rows, -1), _fp32(self.value, found).view(steps, rows), memories

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """As of what chooses."""
        found: list[tuple[nn.Linear, list[int]]] = self.choose.last_layers()
        return found


class RecurrentConv(Remembering):
    """As `Conv`, with a memory."""

    def _body(self, *fitting: Any) -> tuple[int, nn.Module]:
        return WIDTH, _convolved(self.encode.shape, fitting[2])


class RecurrentSlots(Remembering):
    """As `Slots` with one body for outputs and value, and a memory."""

    def _body(self, *fitting: Any) -> tuple[int, nn.Module]:
        spec, action, generator, size = fitting
        return size.width, SlotBody(_layout_of("slots_recurrent", spec, action), generator, size)

    def _choose(self, *fitting: Any) -> Any:
        spec, action, generator, size = fitting
        return SlotChoices(_layout_of("slots_recurrent", spec, action), action, generator, size)


class Choices(nn.Module):
    """The outputs of an action without slots."""

    def __init__(self, width: int, action: ActionSpec, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = _linear(width, action.num_outputs, generator, _POLICY_GAIN)
        self._rows = rows_of_heads(action)

    def forward(self, hidden: Tensor) -> Tensor:
        """B L from B W."""
        return _fp32(self.layer, hidden)

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """One, of all heads."""
        return [(self.layer, self._rows)]


class SlotBody(nn.Module):
    """What is to be known of an environment with slots, whatever their order and number."""

    def __init__(self, layout: SlotLayout, generator: torch.Generator, size: Size) -> None:
        super().__init__()
        self._shared, self._width = layout.shared, layout.width
        self.slot = nn.Sequential(*_hidden(layout.width, generator, replace(size, depth=1)))
        self.whole = nn.Sequential(*_hidden(layout.shared + 2 * size.width, generator, size))

    def forward(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """From B S to the environment as B W, by mean and maximum over slots, and to each slot as B K W."""
        shared, slots = flat[:, : self._shared], flat[:, self._shared :]
        each = self.slot(slots.reshape(len(flat), -1, self._width))
        return self.whole(torch.cat([shared, each.mean(dim=1), each.amax(dim=1)], dim=1)), each


class SlotChoices(nn.Module):
    """Outputs of a factored action of which one head chooses a slot."""

    def __init__(self, layout: SlotLayout, action: Factored, generator: torch.Generator, size: Size) -> None:
        super().__init__()
        number = [head.name for head in action.heads].index(layout.head)
        self._number, self._num_ops = number, action.num_ops
        self._sizes = [size for head, size in enumerate(action.sizes) if head != number]
        self._rows = [head for head in rows_of_heads(action) if head != number]
        self.whole, self.own = (_linear(size.width, size.width, generator, 2**0.5) for _ in range(2))
        self.slot = _linear(size.width, action.num_ops, generator, _POLICY_GAIN)
        self.others = _linear(size.width, sum(self._sizes), generator, _POLICY_GAIN)

    def forward(self, whole: Tensor, each: Tensor) -> Tensor:
        """B L in the flat layout of the action, from the environment B W and its slots B K W."""
        blocks = list(torch.split(_fp32(self.others, whole), self._sizes, dim=1))
        hidden = torch.tanh(self.whole(whole)[:, None] + self.own(each))
        blocks.insert(self._number, _fp32(self.slot, hidden).transpose(1, 2).flatten(1))
        return torch.cat(blocks, dim=1)

    def last_layers(self) -> list[tuple[nn.Linear, list[int]]]:
        """That of the slot's head has a row for each operation."""
        return [(self.slot, [self._number] * self._num_ops), (self.others, self._rows)]


class Memory(nn.Module):
    """A cell with input, forget and output gates; its memory B 2W is what it gives, then what it holds.

    In fp32 whatever the precision around it: what is rounded at each step adds up over an episode.
    """

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.seen, self.given = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width, bias=False)
        for layer in (self.seen, self.given):
            for gate in torch.split(layer.weight.data, width):
                nn.init.orthogonal_(gate, generator=generator)
        # It forgets nothing before it has learned what (Jozefowicz et al. 2015, "An empirical exploration of
        # recurrent network architectures").
        nn.init.zeros_(self.seen.bias)
        nn.init.ones_(self.seen.bias.data[width : 2 * width])

    def forward(self, seen: Tensor, memory: Tensor, begins: Tensor) -> Tensor:
        """The memory after each step, T B 2W; seen: T B W, memory: B 2W, begins: T B bool."""
        drives = _fp32(self.seen, seen)
        found: list[Tensor] = []
        for drive, begin in zip(drives.unbind(), begins.unbind(), strict=True):
            given, held = torch.where(begin[:, None], 0.0, memory).chunk(2, dim=1)
            enter, keep, new, leave = (drive + _fp32(self.given, given)).chunk(4, dim=1)
            held = keep.sigmoid() * held + enter.sigmoid() * new.tanh()
            memory = torch.cat([leave.sigmoid() * held.tanh(), held], dim=1)
            found.append(memory)
        return torch.stack(found)


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
    kind = hidden.device.type if hidden.device.type != "meta" else "cpu"
    found: Tensor
    if not torch.is_autocast_enabled(kind):
        found = layer.forward(hidden)
        return found
    with torch.autocast(kind, enabled=False):
        found = layer(hidden.float())
        return found


def _through(layers: Iterable[nn.Module], found: Tensor) -> Tensor:
    """Layer by layer, without the calls of modules, which cost as much as small layers."""
    if torch.is_autocast_enabled(found.device.type if found.device.type != "meta" else "cpu"):
        for layer in layers:
            found = layer(found)
        return found
    for layer in layers:
        found = layer.forward(found)
    return found


def _hidden(width: int, generator: torch.Generator, size: Size) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for _ in range(size.depth):
        layers += [_linear(width, size.width, generator, 2**0.5), ACTIVATIONS[size.activation]()]
        width = size.width
    return layers


def _convolved(shape: tuple[int, ...], generator: torch.Generator) -> nn.Sequential:
    """From pictures of this shape to B W, by three convolutions and a layer.

    Of 36 x 36 and more they have the strides of Mnih et al. 2015, "Human-level control through deep
    reinforcement learning"; on smaller grids each cell counts.
    """
    if len(shape) != 3:
        raise ValueError(
            f"convolutions need a grid of codes or channels x rows x columns, not {shape}; use network 'mlp'"
        )
    is_large = min(shape[1:]) >= 36
    layers: list[nn.Module] = []
    channels = shape[0]
    for width, (kernel, stride) in zip(CHANNELS, ((8, 4), (4, 2), (3, 1)), strict=True):
        how = (kernel, stride) if is_large else (3, 1, 1)
        layers += [_started(nn.Conv2d(channels, width, *how), generator, 2**0.5), nn.ReLU()]
        channels = width
    body = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        size = body(torch.zeros(1, *shape)).shape[1]
    return body.extend([_linear(size, WIDTH, generator, 2**0.5), nn.ReLU()])


def _linear(width_in: int, width_out: int, generator: torch.Generator, gain: float) -> nn.Linear:
    return cast("nn.Linear", _started(nn.Linear(width_in, width_out), generator, gain))


def _started(layer: nn.Linear | nn.Conv2d, generator: torch.Generator, gain: float) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def rows_of_heads(action: ActionSpec) -> list[int]:
    """Of each output, in the flat layout, the number of its head."""
    sizes: Sequence[int] = action.sizes if isinstance(action, Factored) else (action.num_outputs,)
    return [head for head, size in enumerate(sizes) for _ in range(size)]


def _layout_of(name: str, spec: ObservationSpec, action: ActionSpec) -> SlotLayout:
    """Where the slots are; raises `ValueError` for a world without them."""
    layout = spec.slots
    heads = {head.name: len(head.labels) for head in action.heads} if isinstance(action, Factored) else {}
    if layout is None or heads.get(layout.head) != layout.count:
        raise ValueError(f"network {name!r} needs a world with slots that an action chooses; use 'mlp'")
    return layout


ACTIVATIONS: Final[dict[str, Callable[[], nn.Module]]] = {
    "tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU,
}  # fmt: skip
NETWORKS: Final[dict[str, Callable[[ObservationSpec, ActionSpec, torch.Generator, Size], nn.Module]]] = {
    "mlp": Mlp,
    "mlp_recurrent": Remembering,
    "conv": Conv,
    "conv_recurrent": RecurrentConv,
    "slots": Slots,
    "slots_recurrent": RecurrentSlots,
}
"""Name to what makes one, on the CPU, from the observation, the action and a generator."""


def _made_by(name: str) -> Any:
    if name not in NETWORKS and is_importable(name):
        return component(name)
    return NETWORKS.get(name)


def has_memory(name: str) -> bool:
    """Whether the network called `name` is `Recurrent`; not where there is none."""
    return hasattr(_made_by(name), "unroll")


def network(
    name: str, spec: ObservationSpec, action: ActionSpec, generator: torch.Generator, size: Size | None = None
) -> nn.Module:
    """The network called `name`, or the user's own by `package.module:name`.

    Raises `ValueError` when there is none or it does not fit.
    """
    make = _made_by(name)
    if make is None:
        known = ", ".join(sorted(NETWORKS))
        raise ValueError(f"network {name!r} does not exist; use one of {known}, or package.module:name")
    found: nn.Module = make(spec, action, generator, size or Size())
    return found
