"""Convolutional hosts: three blocks of convolution, ReLU and pooling; slots before and after each pooling.

All hosts are one grouped convolution a layer, a group a host, and branches of one blueprint in one slot are
another. A `vmap` over stacked weights becomes the same grouped convolution, and products of unfolded images
took two to ten times its CPU. Gradients come from autograd, whose share is small here.

Slot `r{row}c{column}` is before (row 0) or after (row 1) the pooling of block `column`; more slots begin
again at the first. All blocks have as many channels, so a blueprint has one size wherever it is grown. A
branch z joins the features of its slot as `Blend` defines.

Rules: branches in isolation learn in a pass of their own, all those of a host at once, in which nothing else
learns. The loops are over layers, blueprints and passes, never over hosts. Must not know stages or rewards.

Shape letters: N hosts, K slots, M passes, R live branches, S samples, C channels, H W height and width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.sync_points import sync_point
from overwatch_rl.worlds.morphogenesis.data import NUM_CLASSES, Dataset, batches
from overwatch_rl.worlds.morphogenesis.hosts.base import Blend, Learned, Measured, Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import CNN
from overwatch_rl.worlds.morphogenesis.hosts.live import Gradients, Rows, learned, which
from overwatch_rl.worlds.morphogenesis.hosts.stacked import Stacked
from overwatch_rl.worlds.morphogenesis.hosts.state import State

BLOCKS: Final = 3
CHANNELS: Final = 6
BATCH_SIZE: Final = 64
BATCHES_PER_STEP: Final = 2
RATE: Final = 0.01
_EPS: Final = 1e-5


def _conv(x: Tensor, weight: Tensor) -> Tensor:
    """S R C H W through R convolutions, R O C k k, at the same size."""
    samples, rows, channels, height, width = x.shape
    _, out, per_group, kernel, _ = weight.shape
    groups = rows * channels // per_group
    found = functional.conv2d(
        x.reshape(samples, rows * channels, height, width),
        weight.reshape(rows * out, per_group, kernel, kernel),
        padding=kernel // 2,
        groups=groups,
    )
    return found.view(samples, rows, out, height, width)


def _norm(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Features of mean 0 and deviation 1 over an image's channel, scaled and moved."""
    scale, shift = weights
    centred = x - x.mean(dim=(3, 4), keepdim=True)
    deviation = (centred.square().mean(dim=(3, 4), keepdim=True) + _EPS).sqrt()
    return centred / deviation * scale[..., None, None] + shift[..., None, None]


def _attention(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Squeeze and excite (Hu et al. 2018): a weight for each channel from the means of all; 0 at first."""
    squeeze, excite = weights
    means = x.mean(dim=(3, 4))  # S R C
    hidden = functional.relu(torch.einsum("src,rdc->srd", means, squeeze))
    return x * torch.tanh(torch.einsum("srd,rcd->src", hidden, excite))[..., None, None]


def _chain(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Convolutions with ReLU between them, and a bias at last."""
    *between, last, bias = weights
    for weight in between:
        x = functional.relu(_conv(x, weight))
    return _conv(x, last) + bias[..., None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What a blueprint computes; the weights of its last tensors are 0 at germination."""

    shapes: tuple[tuple[int, ...], ...]
    run: Callable[[Tensor, list[Tensor]], Tensor]
    zeros: int = 2

    @property
    def size(self) -> int:
        """Parameters."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    def weights(self, flat: Tensor) -> list[Tensor]:
        """Its tensors, R ..., of R P."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        parts = torch.split(flat[:, : self.size], sizes, dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]


_C, _D = CHANNELS, CHANNELS // 2
FORMS: Final = {
    "norm": _Form(shapes=((_C,), (_C,)), run=_norm),
    "attention": _Form(shapes=((_D, _C), (_C, _D)), run=_attention, zeros=1),
    "conv_small": _Form(shapes=((_C, _C, 1, 1), (_C,)), run=_chain),
    "bottleneck": _Form(shapes=((_D, _C, 1, 1), (_D, _D, 3, 3), (_C, _D, 1, 1), (_C,)), run=_chain),
    "depthwise": _Form(shapes=((_C, 1, 3, 3), (_C, _C, 1, 1), (_C,)), run=_chain),
    "conv_light": _Form(shapes=((_C, _C, 3, 3), (_C,)), run=_chain),
    "conv_heavy": _Form(shapes=((_C, _C, 3, 3), (_C, _C, 3, 3), (_C,)), run=_chain),
    "noop": _Form(shapes=(), run=lambda x, _: torch.zeros_like(x)),
}
"""By blueprint."""
_FORMS: Final = tuple(FORMS[blueprint.id] for blueprint in CNN)
_MAX_SIZE: Final = max(form.size for form in _FORMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Live branches of one blueprint in one slot: rows `part` of the live branches, sorted so."""

    slot: int
    form: _Form
    part: slice


class CNNHosts(State):
    """N hosts with K branches each."""

    def __init__(self, num_hosts: int, num_slots: int, data: Dataset, device: torch.device) -> None:
        channels = data.shape[0]
        self._shape = data.shape
        inputs = (channels, *[CHANNELS] * (BLOCKS - 1))
        self._layers: list[tuple[int, ...]] = [(CHANNELS, number, 3, 3) for number in inputs]
        self._layers += [(CHANNELS,)] * BLOCKS + [(NUM_CLASSES, CHANNELS), (NUM_CLASSES,)]
        self.num_parameters = sum(torch.Size(shape).numel() for shape in self._layers)
        super().__init__(
            Stacked.zeros(num_hosts, [(self.num_parameters,)], device),
            Stacked.zeros(num_hosts * num_slots, [(_MAX_SIZE,)], device),
            num_slots,
            batches(data, (num_hosts, BATCH_SIZE), device),
        )
        self.sizes = torch.tensor([float(form.size) for form in _FORMS], device=device)
        self._drawn = torch.stack([_deviations(form) for form in _FORMS]).to(device)  # B P
        self._valid_x, self._valid_y = data.valid_x.to(device), data.valid_y.to(device)

    def first_values(self) -> list[Tensor]:
        """Of all hosts."""
        parts = [
            torch.randn(self._num_hosts, *shape, generator=self.starts, device=self._device)
            * (2.0 / torch.Size(shape[1:]).numel()) ** 0.5
            * (1.0 if len(shape) > 1 else 0.01)
            for shape in self._layers
        ]
        return [torch.cat([part.flatten(1) for part in parts], dim=1)]

    def grown_values(self, num_rows: int) -> list[Tensor]:
        """Of new branches: as many random numbers for each, whatever it will be."""
        return [torch.randn(num_rows, _MAX_SIZE, generator=self.growth, device=self._device)]

    def shape_branches(self, rows: Tensor, blueprint: Tensor) -> None:
        """Scale new branches to their blueprints; what these lack is zero from here on."""
        (weights,) = self.branches.weights
        scale = self._drawn.index_select(0, blueprint.clamp(min=0))
        weights.index_copy_(0, rows, weights.index_select(0, rows) * scale)

    def train(self, wiring: Wiring) -> Learned:
        """Two minibatches for every host and its live branches."""
        self.cut(wiring)
        net = self._net(wiring)
        present = net.present
        branches = self.branches.take(present.rows)
        for _ in range(BATCHES_PER_STEP):
            found = self._gradients(branches.weights[0], net, self.batches.take())
            self.hosts.descend(found.hosts, RATE)
            branches.descend(found.branches, RATE)
        self.branches.put(present.rows, branches)
        return learned(found, present, self.num_slots, (self.num_parameters, self.sizes))

    def validate(self, wiring: Wiring) -> Measured:
        """All validation images in one pass, and one more a slot in which its branches are turned over."""
        alone = torch.eye(self.num_slots, dtype=torch.bool, device=self._device)
        others = torch.where(
            alone[:, None] & wiring.isolated, 1.0, torch.where(alone[:, None], 0.0, wiring.alpha)
        )
        accuracy, loss = self._measured(wiring, torch.cat([wiring.alpha[None], others]))
        change = torch.where(wiring.isolated, 1.0, -1.0) * (accuracy[1:] - accuracy[0]).T
        contribution = change.masked_fill(~which(wiring, len(CNN)), torch.nan)
        return Measured(accuracy=accuracy[0], loss=loss[0], contribution=contribution)

    def masked(self, wiring: Wiring, subsets: Tensor) -> Tensor:
        """N M float32: accuracy with only the slots of each subset (M K bool) connected; a pass a subset."""
        return self._measured(wiring, wiring.alpha * subsets[:, None])[0].T

    @torch.enable_grad()
    def _gradients(self, weights: Tensor, net: "_Net", minibatch: tuple[Tensor, Tensor]) -> Gradients:
        """Of hosts with what is connected, and of branches in isolation; weights: R P."""
        wiring = net.wiring
        x, y = minibatch[0].transpose(0, 1), minibatch[1].T
        hosts, weights = self.hosts.weights[0].detach().requires_grad_(), weights.detach().requires_grad_()
        loss = _cross_entropy(self._logits(hosts, weights, net, (x, wiring.alpha)), y)
        total = loss.sum()
        if net.any_isolated:
            is_alone = wiring.isolated.flatten().index_select(0, net.present.rows)[:, None]
            apart = torch.where(is_alone, weights, weights.detach())
            connected = torch.where(wiring.isolated, 1.0, wiring.alpha)
            logits = self._logits(hosts.detach(), apart, net, (x, connected))
            total = total + (_cross_entropy(logits, y) * wiring.isolated.any(dim=1)).sum()
        of_hosts, of_branches = torch.autograd.grad(total, (hosts, weights), materialize_grads=True)
        return Gradients(loss=loss.detach(), hosts=(of_hosts,), branches=(of_branches,))

    def _logits(self, hosts: Tensor, branches: Tensor, net: "_Net", given: tuple[Tensor, Tensor]) -> Tensor:
        """S N classes, from hosts N P, live branches R P, and given images S N I and alpha N K."""
        x, alpha = given
        x = x.reshape(*x.shape[:2], *self._shape)
        *layers, last, last_bias = self._layer_weights(hosts)
        for block in range(BLOCKS):
            x = functional.relu(_conv(x, layers[block]) + layers[BLOCKS + block][..., None, None])
            x = _grown(x, branches, net, (alpha, block))
            x = functional.max_pool3d(x, (1, 2, 2))
            x = _grown(x, branches, net, (alpha, block + BLOCKS))
        return torch.einsum("snc,noc->sno", x.mean(dim=(3, 4)), last) + last_bias

    def _layer_weights(self, flat: Tensor) -> list[Tensor]:
        """Each layer's weights, N ..., of N P."""
        sizes = [torch.Size(shape).numel() for shape in self._layers]
        parts = torch.split(flat, sizes, dim=1)
        return [part.view(-1, *shape) for part, shape in zip(parts, self._layers, strict=True)]

    @torch.no_grad()
    def _measured(self, wiring: Wiring, alphas: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy and loss, M N each, of a pass for each alpha (M N K), one after the other."""
        self.cut(wiring)
        net = self._net(wiring)
        branches = self.branches.weights[0].index_select(0, net.present.rows)
        x = self._valid_x[:, None].expand(-1, self._num_hosts, -1)
        y = self._valid_y[:, None].expand(-1, self._num_hosts)
        accuracy, loss = [], []
        for alpha in alphas:
            logits = self._logits(self.hosts.weights[0], branches, net, (x, alpha))
            loss.append(_cross_entropy(logits, y))
            right = (logits.argmax(dim=2) == y).float().mean(dim=0)
            accuracy.append(right.masked_fill(~loss[-1].isfinite(), 0.0))
        return torch.stack(accuracy), torch.stack(loss)

    def _net(self, wiring: Wiring) -> "_Net":
        """Live branches sorted by slot and blueprint, and where each kind of them lies."""
        slots = torch.arange(self.num_slots, device=self._device)
        nowhere = self.num_slots * len(_FORMS)
        kind = torch.where(which(wiring, len(CNN)), slots * len(_FORMS) + wiring.blueprint, nowhere).flatten()
        order = kind.argsort(stable=True)
        with sync_point("hosts.live"):
            isolated = (wiring.isolated & which(wiring, len(CNN))).sum()
            *counts, _, num_isolated = torch.cat(
                [kind.bincount(minlength=nowhere + 1), isolated[None]]
            ).tolist()
        rows, groups, start = order[: sum(counts)], [], 0
        for place, count in enumerate(counts):
            slot, number = divmod(place, len(_FORMS))
            if count:
                groups.append(_Group(slot=slot, form=_FORMS[number], part=slice(start, start + count)))
            start += count
        owner, blueprint = rows // self.num_slots, wiring.blueprint.flatten().index_select(0, rows)
        present = Rows(rows=rows, owner=owner, blueprint=blueprint)
        return _Net(present=present, groups=groups, wiring=wiring, any_isolated=num_isolated > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Net:
    """What is grown where, in a pass."""

    present: Rows
    groups: list[_Group]
    wiring: Wiring
    any_isolated: bool


def _grown(x: Tensor, branches: Tensor, net: _Net, where: tuple[Tensor, int]) -> Tensor:
    """S N C H W with what is grown at a position: alpha times the terms of `Blend`, each of the same x."""
    alpha, position = where
    total = x
    for group in net.groups:
        if group.slot % (2 * BLOCKS) != position:
            continue
        owner = net.present.owner[group.part]
        share = alpha[:, group.slot].index_select(0, owner)[:, None, None, None]
        algorithm = net.wiring.algorithm[:, group.slot].index_select(0, owner)[:, None, None, None]
        beside = x.index_select(1, owner)
        z = group.form.run(beside, group.form.weights(branches[group.part]))
        gated = torch.where(algorithm == Blend.GATE, z * z.sigmoid(), z)
        term = torch.where(algorithm == Blend.MULTIPLY, beside * z, gated)
        total = total.index_add(1, owner, share * term)
    return total


def _deviations(form: _Form) -> Tensor:
    """P: what a new branch's random numbers are scaled by, 0 for its last tensors and for what it lacks."""
    drawn = form.shapes[: len(form.shapes) - form.zeros]
    parts = [torch.full(shape, (2.0 / torch.Size(shape[1:]).numel()) ** 0.5).flatten() for shape in drawn]
    scale = torch.cat([torch.zeros(0), *parts])
    return functional.pad(scale, (0, _MAX_SIZE - len(scale)))


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean over samples N; logits: S N classes, y: S N int64."""
    chosen = logits.gather(2, y[..., None]).squeeze(2)
    return (logits.logsumexp(dim=2) - chosen).mean(dim=0)
