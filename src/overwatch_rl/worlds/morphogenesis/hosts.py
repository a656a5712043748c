"""Hosts of two layers, pixels -> 3 ReLU -> logits, which learn digits, with branches of the same kind.

Owns the arithmetic: all hosts are one batched matrix product a layer, all live branches another, so what is
not connected costs nothing. Digits are scikit-learn's, 8 x 8 pixels, and come with it. Rules: a branch in
isolation learns on its host's detached logits, so the host does not feel it; a new branch gives zero, so
germinating changes nothing; a branch's weights outside its blueprint are zero and have no gradient. The
randomness of data, first weights and growth is apart, so growing never changes a host's data. A state holds
all that the next step depends on. Must not know stages, rewards or policies.

Source: Kingma and Ba 2015, Adam. Moments are without bias (m and v over 1 - beta^age), so that rows of
different age take the same step; epsilon is under the root, inside v.

Shape letters: N hosts, K slots, M subsets, R live branches, I pixels and one for the bias, W units, C
classes, S samples. Samples are last, so that what is done a sample runs along memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from overwatch_rl.worlds.morphogenesis.actions import NO_OP, Style

CLASSES: Final = 10
TRAIN_IMAGES: Final = 1200
PIXELS: Final = (8, 8)
HOST_WIDTH: Final = 3
BATCH_SIZE: Final = 64
BATCHES_PER_STEP: Final = 2
LEARNING_RATE: Final = 0.03
BETAS: Final = (0.9, 0.999)
EPS_ROOT: Final = 1e-16


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


BLUEPRINTS: Final = (
    Blueprint(id="mlp_small", code="ms", width=6),
    Blueprint(id="mlp_wide", code="mw", width=12),
    Blueprint(id="linear", code="li", width=4, is_rectified=False),
    Blueprint(id="mlp_centre", code="mc", width=12, margin=1),
    Blueprint(id=NO_OP, code="no", width=0),
)
"""They differ in size, so in what they gain and in the rent they cost; no policy may choose the last."""
MAX_WIDTH: Final = max(blueprint.width for blueprint in BLUEPRINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the branches are connected during one step.

    A branch z joins its host h as h + alpha x term, where the term is z, h * z or z * sigmoid(z) by style.
    """

    alpha: Tensor  # N K float32, share of each branch in its host's output, 0 where not connected
    isolated: Tensor  # N K bool, branches that train beside the host without being part of it
    blueprint: Tensor  # N K int64, -1 where no branch is
    style: Tensor  # N K int64, of `Style`


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """How training went, in the last of the step's minibatches; NaN where no branch learned."""

    is_finite: Tensor  # N bool, loss and all gradients of the host and its branches
    health: Tensor  # N K float32, the smaller of branch's and host's gradient per weight over the larger
    ratio: Tensor  # N K float32, the branch's gradient per weight over the host's
    share: Tensor  # N K float32, norm of the branch's gradient over that of its host and all its branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How well hosts do on all validation images, and what each branch contributes."""

    accuracy: Tensor  # N float32, 0..1; 0 where the loss is not finite
    loss: Tensor  # N float32, mean cross-entropy
    contribution: Tensor  # N K float32, NaN where no branch is
    # in isolation: accuracy if it were added less accuracy; connected: accuracy less accuracy without it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """The branches that are connected or isolated, R each, and places among them."""

    rows: Tensor  # int64, host x K + slot
    owner: Tensor  # int64
    blueprint: Tensor  # int64
    alpha: Tensor  # R 1 1
    isolated: Tensor  # places, int64
    multiplied: Tensor  # places, int64
    gated: Tensor  # places, int64


@cache
def _digits() -> tuple[Tensor, Tensor]:
    """I S float32 in 0..1, the last pixel always 1, by which biases are one more column; S int64."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16.0
    return functional.pad(x, (0, 1), value=1.0).T.contiguous(), torch.from_numpy(labels).long()


class Hosts:
    """N hosts with K branches each."""

    def __init__(self, num_hosts: int, num_slots: int) -> None:
        x, y = _digits()
        self._train_x, self._train_y = x[:, :TRAIN_IMAGES].T.contiguous(), y[:TRAIN_IMAGES]
        self._valid_x, self._valid_y = x[:, TRAIN_IMAGES:].contiguous(), y[TRAIN_IMAGES:]
        pixels = len(x)
        self._streams = {name: torch.Generator() for name in ("order", "growth", "starts")}
        shapes = {
            "host": ((num_hosts, HOST_WIDTH + 1, pixels), (num_hosts, CLASSES, HOST_WIDTH + 1)),
            "branch": (
                (num_hosts, num_slots, MAX_WIDTH + 1, pixels), (num_hosts, num_slots, CLASSES, MAX_WIDTH + 1),
            ),
        }  # fmt: skip
        self.tensors: dict[str, Tensor] = {}
        """Weights, moments and age (in optimiser steps) of hosts, N ..., and of branches, N K ...."""
        for kind, (first, last) in shapes.items():
            for moment in ("", ".mean", ".square"):
                self.tensors |= {f"{kind}.first{moment}": torch.zeros(first)}
                self.tensors |= {f"{kind}.last{moment}": torch.zeros(last)}
            self.tensors[f"{kind}.age"] = torch.zeros(first[:-2])
        self._snapshot = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self._visible = torch.stack([_visible(blueprint) for blueprint in BLUEPRINTS])  # B W I
        self._floors = torch.stack([_floor(MAX_WIDTH, kind.is_rectified) for kind in BLUEPRINTS])  # B W 1
        self.num_parameters = HOST_WIDTH * pixels + CLASSES * (HOST_WIDTH + 1)
        widths = torch.tensor([blueprint.width for blueprint in BLUEPRINTS])
        self.sizes = (self._visible.sum(dim=(1, 2)) + (widths + 1) * CLASSES) * (widths > 0)

    def seed(self, seed: int) -> None:
        """Restart the streams: data, growth, and first weights."""
        for offset, stream in enumerate(self._streams.values()):
            stream.manual_seed(seed + offset)

    def restart(self, hosts: Tensor) -> None:
        """New untrained hosts where `hosts` (N bool); branches are drawn when they germinate."""
        first, last = _random_units(self.tensors["host.first"].shape, self._streams["starts"])
        # Output biases differ, so that one class is the largest where no unit is active.
        last.normal_(std=HOST_WIDTH**-0.5, generator=self._streams["starts"])[..., -1] *= 0.01
        self._replace("host", hosts, first[hosts], last[hosts])
        self.save(hosts)

    def germinate(self, slots: Tensor, blueprint: Tensor) -> None:
        """New branches where `slots` (N K bool): random units, cut to their blueprints (N K), no outputs."""
        shape = (int(slots.sum()), *self.tensors["branch.first"].shape[2:])
        first, last = _random_units(shape, self._streams["growth"])
        self._replace("branch", slots, first * self._visible[blueprint[slots]], last)

    def save(self, hosts: Tensor) -> None:
        """Remember the hosts of `hosts` (N bool) with their branches and optimisers."""
        for name, tensor in self.tensors.items():
            self._snapshot[name][hosts] = tensor[hosts]

    def roll_back(self, hosts: Tensor) -> None:
        """Restore the hosts of `hosts` (N bool) as they were saved last."""
        for name, tensor in self.tensors.items():
            tensor[hosts] = self._snapshot[name][hosts]

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, copied."""
        streams = {name: stream.get_state() for name, stream in self._streams.items()}
        return {name: tensor.clone() for name, tensor in self._named().items()} | streams

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a state of `state_dict`."""
        for name, tensor in self._named().items():
            tensor.copy_(state[name])
        for name, stream in self._streams.items():
            stream.set_state(state[name])

    def _named(self) -> dict[str, Tensor]:
        return self.tensors | {f"snapshot.{name}": tensor for name, tensor in self._snapshot.items()}

    def _replace(self, kind: str, where: Tensor, *weights: Tensor) -> None:
        for name, tensor in self.tensors.items():
            if name.startswith(kind):
                tensor[where] = 0.0
        self.tensors[f"{kind}.first"][where], self.tensors[f"{kind}.last"][where] = weights

    @torch.enable_grad()
    def train(self, wiring: Wiring) -> TrainingResult:
        """Two minibatches for every host and its live branches."""
        live = _live(wiring)
        everyone = torch.arange(len(wiring.alpha))
        for _ in range(BATCHES_PER_STEP):
            shape = (len(everyone), BATCH_SIZE)
            index = torch.randint(TRAIN_IMAGES, shape, generator=self._streams["order"])
            x = self._train_x[index.flatten()].view(*shape, -1).transpose(1, 2)
            weights = [weight.requires_grad_() for weight in self._weights(live)]
            losses = self._losses(weights, live, x, self._train_y[index])
            gradients = torch.autograd.grad(losses.sum(), weights, materialize_grads=True)
            visible = self._visible[live.blueprint]
            of_branches = (gradients[2] * visible, gradients[3])
            self._descend("host", everyone, gradients[:2])
            self._descend("branch", live.rows, of_branches)
        return self._result(live, losses.detach(), gradients[:2], of_branches)

    @torch.no_grad()
    def validate(self, wiring: Wiring) -> Validation:
        """Accuracy and loss on all validation images, and each branch's contribution by ablation."""
        live = _live(wiring)
        host, terms = self._outputs(self._weights(live), live, self._valid_x)
        total = host.index_add(0, live.owner, terms * live.alpha)
        loss = _cross_entropy(total, self._valid_y.expand(len(total), -1))
        accuracy = self._accuracy(total).masked_fill_(~loss.isfinite(), 0.0)
        sign = torch.full_like(live.alpha, -1.0).index_fill_(0, live.isolated, 1.0)
        change = (-live.alpha).index_fill_(0, live.isolated, 1.0)
        changed = total[live.owner].addcmul_(terms, change)
        gained = (self._accuracy(changed) - accuracy[live.owner]) * sign.flatten()
        return Validation(accuracy=accuracy, loss=loss, contribution=_by_slot(gained, live, wiring.alpha))

    @torch.no_grad()
    def masked(self, wiring: Wiring, subsets: Tensor) -> Tensor:
        """N M float32: accuracy with only the slots of each subset (M K bool) connected."""
        live = _live(wiring)
        host, terms = self._outputs(self._weights(live), live, self._valid_x)
        weighted = torch.zeros(wiring.alpha.numel(), host[0].numel())
        weighted[live.rows] = (terms * live.alpha).flatten(1)
        added = subsets.float() @ weighted.view(*wiring.alpha.shape, -1)
        total = host[:, None] + added.view(len(host), len(subsets), *host.shape[1:])
        return self._accuracy(total.flatten(0, 1)).view(len(host), -1)

    def _weights(self, live: _Live) -> list[Tensor]:
        """Both layers of all hosts, then of the live branches, copied."""
        names = ("branch.first", "branch.last")
        branches = [self.tensors[name].flatten(0, 1)[live.rows] for name in names]
        return [self.tensors["host.first"].clone(), self.tensors["host.last"].clone(), *branches]

    def _outputs(self, weights: Sequence[Tensor], live: _Live, x: Tensor) -> tuple[Tensor, Tensor]:
        """N C S, logits of the hosts alone, and R C S, what joins them, times alpha; x: N I S, or I S."""
        first, last, branch_first, branch_last = weights
        host = last @ torch.maximum(first @ x, _floor(HOST_WIDTH, is_rectified=True))
        units = branch_first @ (x if x.dim() == 2 else x[live.owner])
        terms = z = branch_last @ torch.maximum(units, self._floors[live.blueprint])
        if len(places := live.multiplied):
            # What is isolated has no alpha in the hosts' loss, and a loss of its own that they must not feel.
            felt = (live.alpha > 0).float()[places]
            factor = host[live.owner[places]]
            factor = torch.lerp(factor.detach(), factor, felt)
            terms = terms.index_copy(0, places, z[places] * factor)
        if len(places := live.gated):
            terms = terms.index_copy(0, places, z[places] * z[places].sigmoid())
        return host, terms

    def _losses(self, weights: Sequence[Tensor], live: _Live, x: Tensor, y: Tensor) -> Tensor:
        """Of the hosts, N, then of the branches that learn in isolation; y: N S."""
        host, terms = self._outputs(weights, live, x)
        total = host.index_add(0, live.owner, terms * live.alpha)
        owner = live.owner[live.isolated]
        alone = total.detach()[owner] + terms[live.isolated]
        return torch.cat([_cross_entropy(total, y), _cross_entropy(alone, y[owner])])

    @torch.no_grad()
    def _descend(self, kind: str, rows: Tensor, gradients: Sequence[Tensor]) -> None:
        """One step of Adam, R rows."""
        flat = {
            name: tensor if kind == "host" else tensor.flatten(0, 1)
            for name, tensor in self.tensors.items()
            if name.startswith(kind)
        }
        age = flat[f"{kind}.age"].index_add_(0, rows, torch.ones(len(rows)))[rows].view(-1, 1, 1)
        first, second = ((1 - beta) / (1 - beta**age) for beta in BETAS)
        for name, gradient in zip((f"{kind}.first", f"{kind}.last"), gradients, strict=True):
            mean = flat[f"{name}.mean"][rows].lerp_(gradient, first)
            square = flat[f"{name}.square"][rows].lerp_(gradient.square() + EPS_ROOT, second)
            flat[f"{name}.mean"][rows], flat[f"{name}.square"][rows] = mean, square
            flat[name].index_add_(0, rows, mean * square.rsqrt(), alpha=-LEARNING_RATE)

    def _result(
        self, live: _Live, losses: Tensor, hosts: Sequence[Tensor], branches: Sequence[Tensor]
    ) -> TrainingResult:
        host, branch = _squared_norm(hosts), _squared_norm(branches)
        total = host.index_add(0, live.owner, branch)
        per_weight = (branch / self.sizes[live.blueprint]).sqrt()
        ratio = per_weight / (host / self.num_parameters).sqrt()[live.owner]
        slots = self.tensors["branch.age"]
        return TrainingResult(
            is_finite=losses[: len(host)].isfinite() & total.isfinite(),
            health=_by_slot(torch.minimum(ratio, 1 / ratio), live, slots),
            ratio=_by_slot(ratio, live, slots),
            share=_by_slot((branch / total[live.owner]).sqrt(), live, slots),
        )

    def _accuracy(self, logits: Tensor) -> Tensor:
        """R: share of the images whose true class has the largest logit."""
        true = logits.gather(1, self._valid_y.expand(len(logits), 1, -1)).squeeze(1)
        return (true >= logits.amax(dim=1)).float().mean(dim=1)


def _live(wiring: Wiring) -> _Live:
    """The no-op, the last blueprint, never learns or counts."""
    is_grown = (wiring.blueprint >= 0) & (wiring.blueprint < len(BLUEPRINTS) - 1)
    rows = ((wiring.isolated | (wiring.alpha > 0)) & is_grown).flatten().nonzero().squeeze(1)
    alpha, isolated, style = (
        column.flatten()[rows] for column in (wiring.alpha, wiring.isolated, wiring.style)
    )
    return _Live(
        rows=rows,
        owner=rows // wiring.alpha.shape[1],
        blueprint=wiring.blueprint.flatten()[rows],
        alpha=alpha[:, None, None],
        isolated=isolated.nonzero().squeeze(1),
        multiplied=(style == Style.LINEAR_MULTIPLY).nonzero().squeeze(1),
        gated=(style == Style.GATED).nonzero().squeeze(1),
    )


def _by_slot(values: Tensor, live: _Live, shape_of: Tensor) -> Tensor:
    """N K: R values in their slots, NaN elsewhere."""
    everywhere = torch.full((shape_of.numel(),), torch.nan)
    everywhere[live.rows] = values
    return everywhere.view_as(shape_of)


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """R: means over samples; logits: R C S, y: R S int64."""
    shares = logits - logits.detach().amax(dim=1, keepdim=True)
    return (shares.exp().sum(dim=1).log() - shares.gather(1, y[:, None]).squeeze(1)).mean(dim=1)


def _squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    """R: of each network's gradient, whatever tensors it is in."""
    return torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients]).sum(dim=0)


def _floor(width: int, is_rectified: bool) -> Tensor:  # noqa: FBT001  # a property of the row
    """W 1: the least value of each unit. The last one has no weights and is always 1."""
    return torch.tensor([0.0 if is_rectified else -torch.inf] * width + [1.0])[:, None]


def _random_units(shape: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """First layers R W I at random without biases, and last layers R C W of zero."""
    first = torch.zeros(shape)
    units = first[:, :-1, :-1]
    units.normal_(std=(2.0 / units.shape[2]) ** 0.5, generator=generator)
    return first, torch.zeros(shape[0], CLASSES, shape[1])


def _visible(blueprint: Blueprint) -> Tensor:
    """W I: 1 for the first-layer weights that a blueprint has, its units' biases last."""
    pixels = torch.zeros(PIXELS)
    edge = slice(blueprint.margin, PIXELS[0] - blueprint.margin)
    pixels[edge, edge] = 1.0
    units = (torch.arange(MAX_WIDTH + 1) < blueprint.width).float()
    return units[:, None] * torch.cat([pixels.flatten(), torch.ones(1)])
