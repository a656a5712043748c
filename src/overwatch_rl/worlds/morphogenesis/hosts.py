"""All host networks of a world and the branches grown on them, trained as one batched computation.

A host is 64 -> 3 ReLU -> 10, too small for the task on purpose; a slot's branch adds alpha times its logits.
Rules: a branch in training learns on the host's detached logits, so the host does not feel it; its output
weights start at zero, so germinating changes nothing. Randomness comes from the generators of `reset` only.
Must not know stages, rewards or policies.

Shape letters: N hosts, K slots, R live branches, I pixels, W units, C classes, S samples.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.worlds.morphogenesis.blueprints import BLUEPRINTS, MAX_WIDTH
from overwatch_rl.worlds.morphogenesis.digits import NUM_CLASSES, NUM_PIXELS, digits

HOST_WIDTH: Final = 3
BATCH_SIZE: Final = 64
BATCHES_PER_STEP: Final = 2
LEARNING_RATE: Final = 0.03
_BETAS: Final = (0.9, 0.999)
_EPS: Final = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the branches are connected during one step."""

    alpha: Tensor  # N K float32, share of each branch in its host's output
    isolated: Tensor  # N K bool, branches that train beside the host without being part of it
    blueprint: Tensor  # N K int64, -1 where no branch is


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How well hosts do, and what each branch contributes."""

    accuracy: Tensor  # N float32, share of the validation images
    loss: Tensor  # N float32, mean cross-entropy
    gain: Tensor  # N K float32; in isolation: accuracy if it were added; else: accuracy lost without it


class _Layers:
    """Two-layer networks side by side with their Adam moments, one network a row."""

    def __init__(self, rows: int, width: int) -> None:
        shapes = [(NUM_PIXELS, width), (1, width), (width, NUM_CLASSES), (1, NUM_CLASSES)]
        self._tensors = [torch.zeros(rows, *shape) for shape in shapes]
        self._moments = [(torch.zeros_like(tensor), torch.zeros_like(tensor)) for tensor in self._tensors]
        self._age = torch.zeros(rows)

    def restart(self, rows: Tensor, values: list[Tensor]) -> None:
        """Give the networks of `rows` (int64) these values and no past."""
        for tensor, value, moments in zip(self._tensors, values, self._moments, strict=True):
            tensor[rows] = value
            for moment in moments:
                moment[rows] = 0.0
        self._age[rows] = 0.0

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors, not copied."""
        state = {f"{number}": tensor for number, tensor in enumerate(self._tensors)}
        for number, moments in enumerate(self._moments):
            state |= {f"{number}.{order}": moment for order, moment in enumerate(moments)}
        return state | {"age": self._age}

    def take(self, rows: Tensor, *, learning: bool) -> "_Networks":
        """A copy of the networks of `rows` (int64), as leaves of a graph when they are `learning`."""
        first, bias, last, last_bias = (tensor[rows].requires_grad_(learning) for tensor in self._tensors)
        return _Networks(first=first, bias=bias, last=last, last_bias=last_bias)

    def descend(self, rows: Tensor, gradients: tuple[Tensor, ...]) -> None:
        """One Adam step of the networks of `rows`."""
        first, second = _BETAS
        age = self._age[rows] + 1.0
        self._age[rows] = age
        rate = LEARNING_RATE * (1 - second**age).sqrt() / (1 - first**age)
        for tensor, gradient, (means, squares) in zip(self._tensors, gradients, self._moments, strict=True):
            mean = means[rows].lerp_(gradient, 1 - first)
            square = squares[rows].mul_(second).addcmul_(gradient, gradient, value=1 - second)
            means[rows], squares[rows] = mean, square
            tensor[rows] -= mean * rate[:, None, None] / (square.sqrt() + _EPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Networks:
    """R two-layer networks at one moment."""

    first: Tensor  # R I W
    bias: Tensor  # R 1 W
    last: Tensor  # R W C
    last_bias: Tensor  # R 1 C

    @property
    def leaves(self) -> list[Tensor]:
        """All tensors, in the order of `_Layers.descend`."""
        return [self.first, self.bias, self.last, self.last_bias]

    def hidden(self, x: Tensor) -> Tensor:
        """Inputs to the units, R S W, from images R S I or from shared images S I."""
        if x.dim() == 3:
            return torch.baddbmm(self.bias, x, self.first)
        rows, pixels, width = self.first.shape
        flat = x @ self.first.transpose(0, 1).reshape(pixels, rows * width)
        return flat.view(len(x), rows, width).transpose(0, 1) + self.bias

    def logits(self, units: Tensor) -> Tensor:
        """R S C from units R S W."""
        return torch.baddbmm(self.last_bias, units, self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradients:
    """Of one optimiser step, in the order of `_Networks.leaves`."""

    hosts: tuple[Tensor, ...]  # N ...
    branches: tuple[Tensor, ...]  # R ...
    rows: Tensor  # R int64, host x K + slot of each branch


class Hosts:
    """N hosts with K branches each."""

    def __init__(self, num_hosts: int, num_slots: int) -> None:
        self._num_hosts = num_hosts
        self._num_slots = num_slots
        self._data = digits()
        self._hosts = _Layers(num_hosts, HOST_WIDTH)
        self._branches = _Layers(num_hosts * num_slots, MAX_WIDTH)
        self._order = torch.Generator()
        self._growth = torch.Generator()
        self._units = torch.tensor(
            [[unit < blueprint.width for unit in range(MAX_WIDTH)] for blueprint in BLUEPRINTS]
        )
        self._rectified = torch.tensor([blueprint.rectified for blueprint in BLUEPRINTS])
        self._host_size = torch.tensor(float((NUM_PIXELS + 1) * HOST_WIDTH + (HOST_WIDTH + 1) * NUM_CLASSES))
        self._sizes = torch.tensor([float(blueprint.num_parameters) for blueprint in BLUEPRINTS])

    def seed(self, seed: int) -> None:
        """Restart both streams of randomness: data and hosts, and separately what is grown."""
        self._order.manual_seed(seed)
        self._growth.manual_seed(seed + 1)

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        parts = {"hosts": self._hosts, "branches": self._branches}
        state = {
            f"{part}.{name}": tensor.clone()
            for part, layers in parts.items()
            for name, tensor in layers.state_dict().items()
        }
        return state | {"order": self._order.get_state(), "growth": self._growth.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        parts = {"hosts": self._hosts, "branches": self._branches}
        for part, layers in parts.items():
            for name, tensor in layers.state_dict().items():
                tensor.copy_(state[f"{part}.{name}"])
        self._order.set_state(state["order"])
        self._growth.set_state(state["growth"])

    def restart(self) -> None:
        """New untrained hosts; branches are made when they germinate."""
        self._hosts.restart(
            torch.arange(self._num_hosts), _values(self._num_hosts, HOST_WIDTH, self._order, outputs=True)
        )

    def germinate(self, rows: Tensor) -> None:
        """New branches in `rows` (int64, host x K + slot)."""
        if len(rows):
            self._branches.restart(rows, _values(len(rows), MAX_WIDTH, self._growth, outputs=False))

    def train(self, wiring: Wiring) -> Tensor:
        """Two minibatches for every host; returns gradient health in the last of them, N K float32.

        That is the smaller of the two gradients of branch and host over the larger, each as its norm per
        weight: 1 where they are equal, 0 where one vanished, NaN where no branch learned or neither did.
        """
        data = self._data
        for _ in range(BATCHES_PER_STEP):
            index = torch.randint(len(data.train_y), (self._num_hosts, BATCH_SIZE), generator=self._order)
            gradients = self._descend(data.train_x[index], data.train_y[index], wiring)
        return self._health(gradients, wiring)

    @torch.enable_grad()
    def _descend(self, x: Tensor, y: Tensor, wiring: Wiring) -> "_Gradients":
        """One optimiser step of all hosts and all live branches; x: N S I, y: N S."""
        everyone = torch.arange(self._num_hosts)
        rows, owner = self._live(wiring)
        alpha, isolated = wiring.alpha.flatten()[rows], wiring.isolated.flatten()[rows]
        hosts = self._hosts.take(everyone, learning=True)
        branches = self._branches.take(rows, learning=True)
        logits = self._branch_logits(branches, x[owner], wiring.blueprint.flatten()[rows])
        host = hosts.logits(functional.relu(hosts.hidden(x)))
        total = host.index_add(0, owner, alpha[:, None, None] * logits)
        alone = total.detach()[owner] + logits
        loss = _cross_entropy(total, y).mean(dim=1).sum()
        loss = loss + (_cross_entropy(alone, y[owner]).mean(dim=1) * isolated).sum()
        gradients = torch.autograd.grad(loss, [*hosts.leaves, *branches.leaves])
        split = len(hosts.leaves)
        found = _Gradients(hosts=gradients[:split], branches=gradients[split:], rows=rows)
        self._hosts.descend(everyone, found.hosts)
        self._branches.descend(rows, found.branches)
        return found

    def _health(self, gradients: "_Gradients", wiring: Wiring) -> Tensor:
        """N K, from the gradients of one optimiser step."""
        rows = gradients.rows
        branch = _strength(gradients.branches, self._sizes[wiring.blueprint.flatten()[rows]])
        host = _strength(gradients.hosts, self._host_size)[rows // self._num_slots]
        health = torch.full((wiring.alpha.numel(),), torch.nan)
        health[rows] = torch.minimum(branch, host) / torch.maximum(branch, host)
        return health.view_as(wiring.alpha)

    @torch.no_grad()
    def validate(self, wiring: Wiring) -> Validation:
        """Accuracy and loss on all validation images, and each branch's gain by ablation."""
        x, y = self._data.valid_x, self._data.valid_y
        rows, owner = self._live(wiring)
        alpha, isolated = wiring.alpha.flatten()[rows], wiring.isolated.flatten()[rows]
        hosts = self._hosts.take(torch.arange(self._num_hosts), learning=False)
        branches = self._branches.take(rows, learning=False)
        logits = self._branch_logits(branches, x, wiring.blueprint.flatten()[rows])
        total = hosts.logits(functional.relu(hosts.hidden(x)))
        total = total.index_add(0, owner, alpha[:, None, None] * logits)
        accuracy = (total.argmax(dim=-1) == y).float().mean(dim=-1)
        change = torch.where(isolated, 1.0, -alpha)
        other = total[owner] + change[:, None, None] * logits
        other_accuracy = (other.argmax(dim=-1) == y).float().mean(dim=-1)
        gain = torch.zeros(wiring.alpha.numel())
        gain[rows] = (other_accuracy - accuracy[owner]) * torch.where(isolated, 1.0, -1.0)
        loss = _cross_entropy(total, y.expand(self._num_hosts, -1)).mean(dim=-1)
        return Validation(accuracy=accuracy, loss=loss, gain=gain.view_as(wiring.alpha))

    def _live(self, wiring: Wiring) -> tuple[Tensor, Tensor]:
        """Rows of the branches that learn or count, and the host of each."""
        rows = (wiring.isolated | (wiring.alpha > 0)).flatten().nonzero().squeeze(1)
        return rows, rows // self._num_slots

    def _branch_logits(self, branches: _Networks, x: Tensor, blueprint: Tensor) -> Tensor:
        """R S C from images R S I or S I and the blueprint of each branch (R int64)."""
        hidden = branches.hidden(x)
        units = torch.where(self._rectified[blueprint][:, None, None], functional.relu(hidden), hidden)
        return branches.logits(units * self._units[blueprint][:, None])


def _values(rows: int, width: int, generator: torch.Generator, *, outputs: bool) -> list[Tensor]:
    """Initial values of `rows` networks; without `outputs` the last layer is zero."""
    first = torch.randn(rows, NUM_PIXELS, width, generator=generator) * (2.0 / NUM_PIXELS) ** 0.5
    last = torch.zeros(rows, width, NUM_CLASSES)
    if outputs:
        last = torch.randn(rows, width, NUM_CLASSES, generator=generator) * (1.0 / width) ** 0.5
    return [first, torch.zeros(rows, 1, width), last, torch.zeros(rows, 1, NUM_CLASSES)]


def _strength(gradients: tuple[Tensor, ...], sizes: Tensor) -> Tensor:
    """Norm of each network's gradient per weight (root mean square), R; sizes: R, or one for all."""
    squares = torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients])
    return (squares.sum(dim=0) / sizes).sqrt()


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Per sample: logits ... C, y ... int64."""
    chosen = logits.gather(-1, y[..., None]).squeeze(-1)
    return logits.logsumexp(dim=-1) - chosen
