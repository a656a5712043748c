"""Hosts of two layers, pixels -> 3 ReLU -> logits, with branches of the same kind; gradients written out.

Owns the arithmetic: all hosts are one batched matrix product a layer, all live branches another, so what is
not connected costs nothing. Networks are too small for autograd, whose graph costs as much as the products.
Rules: a branch in isolation learns on its host's detached logits, so the host does not feel it; a branch's
weights outside its blueprint are zero and have no gradient; a state holds all that the next step depends on,
and loading it goes on to the bit. Must not know stages, rewards or policies.

Shape letters: N hosts, K slots, M subsets, R live branches, I pixels and one for the bias, W units, C
classes, S samples. Samples are last, so that what is done a sample runs along memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from overwatch_rl.worlds.morphogenesis.data import NUM_CLASSES, Dataset, Resident
from overwatch_rl.worlds.morphogenesis.hosts.base import Learned, Measured, Wiring
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP, Blueprint
from overwatch_rl.worlds.morphogenesis.hosts.live import Gradients, Live, learned, live
from overwatch_rl.worlds.morphogenesis.hosts.stacked import Stacked

HOST_WIDTH: Final = 3
BATCH_SIZE: Final = 64
BATCHES_PER_STEP: Final = 2
MAX_WIDTH: Final = max(blueprint.width for blueprint in MLP)
_IN_CACHE: Final = 48
"""Branches that are validated together on a CPU: what they need then stays in its cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outputs:
    """Of some hosts and their live branches on all validation images."""

    present: Live
    host: Tensor  # N C S, logits
    terms: Tensor  # R C S, what joins them, times alpha
    total: Tensor  # N C S


class MLPHosts:
    """N hosts with K branches each."""

    def __init__(self, num_hosts: int, num_slots: int, data: Dataset, device: torch.device) -> None:
        biased = replace(data, train_x=_with_bias(data.train_x), valid_x=_with_bias(data.valid_x))
        hosts = Stacked.zeros(num_hosts, _shapes(HOST_WIDTH, biased.num_pixels), device)
        branches = Stacked.zeros(num_hosts * num_slots, _shapes(MAX_WIDTH, biased.num_pixels), device)
        self.hosts, self.branches, self.num_slots = hosts, branches, num_slots
        self.batches = Resident(biased, (num_hosts, BATCH_SIZE), device)
        self._device, self._num_hosts = device, num_hosts
        self.starts, self.growth = torch.Generator(device), torch.Generator(device)
        self._kept = [tensor.clone() for tensor in (*hosts.tensors, *branches.tensors)]
        self._uncut: list[Tensor] = []
        """Rows of new branches whose blueprint no wiring has named yet."""
        self._seen = torch.stack([_seen(blueprint, data.shape) for blueprint in MLP]).to(device)  # B W I
        self._floors = torch.stack([_floor(MAX_WIDTH, blueprint.is_rectified) for blueprint in MLP]).to(
            device
        )
        self._floor = _floor(HOST_WIDTH, is_rectified=True).to(device)
        self.num_parameters = hosts.weights[0][0, 1:].numel() + hosts.weights[1][0].numel()
        widths = torch.tensor([blueprint.width for blueprint in MLP], device=device)
        self.sizes = (self._seen.sum(dim=(1, 2)) + (widths + 1) * NUM_CLASSES) * (widths > 0)
        self._valid_x = biased.valid_x.to(device).T.contiguous()  # I S
        self._valid_y = data.valid_y.to(device)
        # Each branch's copy of its host's minibatch, kept: it is the largest tensor of a step.
        self._copies = torch.empty(num_hosts * num_slots, BATCH_SIZE, biased.num_pixels, device=device)

    def seed(self, seed: int) -> None:
        """Restart the streams: data, first weights, and what is grown."""
        self.batches.seed(seed)
        self.growth.manual_seed(seed + 1)
        self.starts.manual_seed(seed + 2)

    def restart(self, hosts: Tensor | None = None) -> None:
        """New untrained hosts in these rows (int64), or everywhere; branches are made when they germinate."""
        rows = torch.arange(self._num_hosts, device=self._device) if hosts is None else hosts
        self.hosts.restart(rows, [value.index_select(0, rows) for value in self.first_values()])
        self.keep(rows)

    def germinate(self, rows: Tensor) -> None:
        """New branches in `rows` (int64, host x K + slot)."""
        if len(rows):
            self.branches.restart(rows, self.grown_values(len(rows)))
            self._uncut.append(rows)

    def cut(self, wiring: Wiring) -> None:
        """Give new branches the blueprints that this wiring names."""
        for rows in self._uncut:
            self.shape_branches(rows, wiring.blueprint.flatten().index_select(0, rows))
        self._uncut.clear()

    def keep(self, hosts: Tensor) -> None:
        """Remember these hosts (int64) with their branches and optimisers, in place of what was kept."""
        for (tensor, kept), rows in zip(self._pairs(), self._rows(hosts), strict=True):
            kept.index_copy_(0, rows, tensor.index_select(0, rows))

    def roll_back(self, hosts: Tensor) -> None:
        """Make these hosts (int64) what was kept of them last."""
        for (tensor, kept), rows in zip(self._pairs(), self._rows(hosts), strict=True):
            tensor.index_copy_(0, rows, kept.index_select(0, rows))

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, copied."""
        uncut = torch.cat([torch.zeros(0, dtype=torch.int64, device=self._device), *self._uncut])
        streams = {
            "order": self.batches.state(),
            "growth": self.growth.get_state(),
            "starts": self.starts.get_state(),
        }
        return {name: tensor.clone() for name, tensor in self._named().items()} | streams | {"uncut": uncut}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become as it was."""
        for name, tensor in self._named().items():
            tensor.copy_(state[name])
        self.batches.restore(state["order"])
        self.growth.set_state(state["growth"])
        self.starts.set_state(state["starts"])
        self._uncut = [state["uncut"].clone()] if len(state["uncut"]) else []

    def _named(self) -> dict[str, Tensor]:
        now, kept = zip(*self._pairs(), strict=True)
        names = [f"hosts.{place}" for place in range(len(self.hosts.tensors))]
        names += [f"branches.{place}" for place in range(len(self.branches.tensors))]
        return dict(zip(names, now, strict=True)) | {
            f"kept.{name}": tensor for name, tensor in zip(names, kept, strict=True)
        }

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each tensor with what is kept of it."""
        return list(zip((*self.hosts.tensors, *self.branches.tensors), self._kept, strict=True))

    def _rows(self, hosts: Tensor) -> list[Tensor]:
        """Rows of these hosts in each of `_pairs`."""
        slots = torch.arange(self.num_slots, device=self._device)
        branches = (hosts[:, None] * self.num_slots + slots).flatten()
        return [hosts] * len(self.hosts.tensors) + [branches] * len(self.branches.tensors)

    def first_values(self) -> list[Tensor]:
        """Of all hosts; output biases differ, so that one class is the largest where no unit is active."""
        first, last = _random_units(self.hosts.weights, self._num_hosts, self.starts)
        last.normal_(std=HOST_WIDTH**-0.5, generator=self.starts)[..., -1] *= 0.01
        return [first, last]

    def grown_values(self, num_rows: int) -> list[Tensor]:
        """Of new branches: random units of full width, and outputs of zero."""
        return _random_units(self.branches.weights, num_rows, self.growth)

    def shape_branches(self, rows: Tensor, blueprint: Tensor) -> None:
        """Cut new branches (R int64) to their blueprints (R int64): what these lack is zero from here on."""
        first = self.branches.weights[0]
        seen = self._seen.index_select(0, blueprint.clamp(min=0))
        first.index_copy_(0, rows, first.index_select(0, rows) * seen)

    @torch.no_grad()
    def train(self, wiring: Wiring) -> Learned:
        """Two minibatches for every host and its live branches."""
        self.cut(wiring)
        present = live(wiring, len(MLP))
        branches = self.branches.take(present.rows)
        has_margin = any(
            count and blueprint.margin for count, blueprint in zip(present.counts, MLP, strict=True)
        )
        seen = self._seen.index_select(0, present.blueprint) if has_margin else None
        for _ in range(BATCHES_PER_STEP):
            found = self._gradients(branches, present, *self.batches.take())
            if seen is not None:
                found.branches[0].mul_(seen)
            self.hosts.descend(found.hosts)
            branches.descend(found.branches)
        self.branches.put(present.rows, branches)
        return learned(found, present, self.num_slots, (self.num_parameters, self.sizes))

    @torch.no_grad()
    def validate(self, wiring: Wiring) -> Measured:
        """Accuracy and loss on all validation images, and each branch's contribution by ablation."""
        self.cut(wiring)
        parts = [self._validated(part, start) for part, start in self._chunks(wiring)]
        accuracy, loss, contribution = (torch.cat(part) for part in zip(*parts, strict=True))
        return Measured(accuracy=accuracy, loss=loss, contribution=contribution)

    @torch.no_grad()
    def masked(self, wiring: Wiring, subsets: Tensor) -> Tensor:
        """N M float32: accuracy with only the slots of each subset (M K bool) connected."""
        self.cut(wiring)
        return torch.cat([self._subsets(part, start, subsets) for part, start in self._chunks(wiring)])

    def _gradients(self, branches: Stacked, present: Live, x: Tensor, y: Tensor) -> Gradients:
        """Of the sum of all losses; x: N S I, y: N S."""
        (first, last), (branch_first, branch_last) = self.hosts.weights, branches.weights
        owner, alpha = present.owner, present.alpha[:, None, None]
        x_of_branch = torch.index_select(x, 0, owner, out=self._copies[: len(owner)])
        floor = self._floors.index_select(0, present.blueprint)
        host_units = torch.bmm(first, x.transpose(1, 2))
        torch.maximum(host_units, self._floor, out=host_units)
        units = torch.bmm(branch_first, x_of_branch.transpose(1, 2))
        torch.maximum(units, floor, out=units)
        host, z = torch.bmm(last, host_units), torch.bmm(branch_last, units)
        terms, slopes = _terms(present, host, z)
        total = host.index_add(0, owner, terms * alpha)
        loss, d_total = _cross_entropy(total, y)
        d_z = d_total.index_select(0, owner).mul_(alpha)
        if slopes.multiplied is not None:  # The host feels what multiplies it; alpha is 0 in isolation.
            part = present.multiply
            d_host = d_total.index_add_(0, owner[part], d_z[part] * z[part])
        else:
            d_host = d_total
        if present.any_isolated:
            alone = total.index_select(0, owner).add_(terms)
            _, d_alone = _cross_entropy(alone, y.index_select(0, owner))
            d_z = torch.where(present.isolated[:, None, None], d_alone, d_z)
        if slopes.multiplied is not None:
            d_z[present.multiply] *= slopes.multiplied
        if slopes.gates is not None:
            d_z[present.gate] *= slopes.gates * (1.0 + z[present.gate] * (1.0 - slopes.gates))
        d_host_units = torch.bmm(last.transpose(1, 2), d_host).masked_fill_(host_units <= self._floor, 0.0)
        d_units = torch.bmm(branch_last.transpose(1, 2), d_z).masked_fill_(units <= floor, 0.0)
        return Gradients(
            loss=loss,
            hosts=(torch.bmm(d_host_units, x), torch.bmm(d_host, host_units.transpose(1, 2))),
            branches=(torch.bmm(d_units, x_of_branch), torch.bmm(d_z, units.transpose(1, 2))),
        )

    def _chunks(self, wiring: Wiring) -> Iterator[tuple[Wiring, slice]]:
        """Hosts that are measured together: all on a GPU, as many as fit the cache on a CPU."""
        num_hosts = len(wiring.alpha)
        size = num_hosts if wiring.alpha.is_cuda else max(1, _IN_CACHE // self.num_slots)
        for start in range(0, num_hosts, size):
            part = slice(start, start + size)
            yield (
                Wiring(
                    alpha=wiring.alpha[part],
                    isolated=wiring.isolated[part],
                    blueprint=wiring.blueprint[part],
                    algorithm=wiring.algorithm[part],
                ),
                part,
            )

    def _outputs(self, wiring: Wiring, part: slice) -> _Outputs:
        """Of the hosts in `part`, on all validation images."""
        present = live(wiring, len(MLP))
        first, last = (weight[part] for weight in self.hosts.weights)
        rows = present.rows + part.start * self.num_slots
        branch_first, branch_last = (weight.index_select(0, rows) for weight in self.branches.weights)
        host = torch.bmm(last, self._units(first, self._floor))
        floors = self._floors.index_select(0, present.blueprint)
        z = torch.bmm(branch_last, self._units(branch_first, floors))
        terms, _ = _terms(present, host, z)
        total = host.index_add(0, present.owner, terms * present.alpha[:, None, None])
        return _Outputs(present=present, host=host, terms=terms, total=total)

    def _units(self, first: Tensor, floor: Tensor) -> Tensor:
        """R W S: units on all validation images, as one product."""
        rows, width, pixels = first.shape
        units = (first.reshape(rows * width, pixels) @ self._valid_x).view(rows, width, len(self._valid_y))
        return torch.maximum(units, floor, out=units)

    def _validated(self, wiring: Wiring, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Accuracy N, loss N and contribution N K of the hosts in `part`."""
        found = self._outputs(wiring, part)
        present, total = found.present, found.total
        chosen, largest = self._chosen(total), total.amax(dim=1)
        sums = (total - largest[:, None]).exp_().sum(dim=1)
        loss = sums.log_().add_(largest).sub_(chosen).mean(dim=1)
        accuracy = (chosen >= largest).float().mean(dim=1).masked_fill(~loss.isfinite(), 0.0)
        change = torch.where(present.isolated, 1.0, -present.alpha)[:, None, None]
        other = total.index_select(0, present.owner).addcmul_(found.terms, change)
        sign = torch.where(present.isolated, 1.0, -1.0)
        contribution = torch.full((wiring.alpha.numel(),), torch.nan, device=total.device)
        gained = (self._accuracy(other) - accuracy.index_select(0, present.owner)) * sign
        contribution.index_copy_(0, present.rows, gained)
        return accuracy, loss, contribution.view_as(wiring.alpha)

    def _subsets(self, wiring: Wiring, part: slice, subsets: Tensor) -> Tensor:
        """N M: accuracy of the hosts in `part` with each subset of their slots."""
        found = self._outputs(wiring, part)
        present, host = found.present, found.host
        weighted = torch.zeros(wiring.alpha.numel(), host[0].numel(), device=host.device)
        weighted.index_copy_(0, present.rows, found.terms.flatten(1) * present.alpha[:, None])
        weighted = weighted.view(*wiring.alpha.shape, -1)  # N K CS
        total = host.flatten(1)[:, None] + subsets.to(host.dtype) @ weighted  # N M CS
        accuracy = self._accuracy(total.view(-1, *host.shape[1:]))
        return accuracy.view(len(host), len(subsets))

    def _chosen(self, logits: Tensor) -> Tensor:
        """R S: logits of the true classes."""
        return logits.gather(1, self._valid_y.expand(len(logits), 1, -1)).squeeze(1)

    def _accuracy(self, logits: Tensor) -> Tensor:
        """R: share of the images whose true class has the largest logit."""
        return (self._chosen(logits) >= logits.amax(dim=1)).float().mean(dim=1)


def _shapes(width: int, pixels: int) -> list[tuple[int, ...]]:
    """First and last layer; the last unit is always 1, by which the outputs' biases are one more column."""
    return [(width + 1, pixels), (NUM_CLASSES, width + 1)]


def _floor(width: int, is_rectified: bool) -> Tensor:  # noqa: FBT001  # a row's own property
    """W 1: the least value of each unit. The last one has no weights and is always 1."""
    return torch.tensor([0.0 if is_rectified else -torch.inf] * width + [1.0])[:, None]


def _random_units(weights: list[Tensor], rows: int, generator: torch.Generator) -> list[Tensor]:
    """First layers at random without biases, last layers of zero, in the shapes of `weights`."""
    first, last = (weight.new_zeros(rows, *weight.shape[1:]) for weight in weights)
    drawn = first[:, :-1, :-1]
    drawn.normal_(std=(2.0 / drawn.shape[2]) ** 0.5, generator=generator)
    return [first, last]


def _seen(blueprint: Blueprint, shape: tuple[int, int, int]) -> Tensor:
    """W I: 1 for the first-layer weights that a blueprint has, its units' biases last."""
    margin, (_, height, width) = blueprint.margin, shape
    pixels = torch.zeros(shape)
    pixels[:, margin : height - margin, margin : width - margin] = 1.0
    units = (torch.arange(MAX_WIDTH + 1) < blueprint.width).float()
    return units[:, None] * torch.cat([pixels.flatten(), torch.ones(1)])


def _with_bias(pixels: Tensor) -> Tensor:
    """Images with a last pixel that is 1, by which the first layer's biases are one more column."""
    return functional.pad(pixels, (0, 1), value=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slopes:
    """What the terms of some branches were multiplied by; `None` where none blends this way."""

    multiplied: Tensor | None  # logits of the hosts that are multiplied
    gates: Tensor | None


def _terms(present: Live, host: Tensor, z: Tensor) -> tuple[Tensor, _Slopes]:
    """R C S: what joins the hosts' logits, times alpha; see `Blend`. Where all add, it is `z` itself."""
    multiply, gate = present.multiply, present.gate
    multiplied = host.index_select(0, present.owner[multiply]) if multiply.start < multiply.stop else None
    gates = z[gate].sigmoid() if gate.start < gate.stop else None
    terms = z if multiplied is gates is None else z.clone()
    if multiplied is not None:
        terms[multiply] *= multiplied
    if gates is not None:
        terms[gate] *= gates
    return terms, _Slopes(multiplied=multiplied, gates=gates)


def _cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over samples R, and its gradient R C S; y: R S int64."""
    true, scale = y[:, None], 1.0 / y.shape[1]
    shares = logits - logits.amax(dim=1, keepdim=True)
    chosen = shares.gather(1, true).squeeze(1)
    sums = shares.exp_().sum(dim=1, keepdim=True)
    loss = sums.squeeze(1).log().sub_(chosen).mean(dim=1)
    gradient = shares.mul_(scale / sums)
    return loss, gradient.scatter_add_(1, true, gradient.new_full((1, 1, 1), -scale).expand(true.shape))
