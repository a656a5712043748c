"""Which branches learn or count in a step, and what their gradients show.

Rules: the one read of the device a pass happens here. Must not know networks.

Shape letters: N hosts, K slots, R live branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from overwatch_rl.sync_points import sync_point
from overwatch_rl.worlds.morphogenesis.hosts.base import Blend, Learned, Wiring
from overwatch_rl.worlds.morphogenesis.hosts.stacked import squared_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The branches that are connected or isolated, sorted by `Blend`, then by host and slot."""

    rows: Tensor  # R int64, host x K + slot
    owner: Tensor  # R int64
    blueprint: Tensor  # R int64
    alpha: Tensor  # R float32
    isolated: Tensor  # R bool
    multiply: slice
    gate: slice
    any_isolated: bool
    counts: tuple[int, ...]  # B, how many branches of each blueprint


def live(wiring: Wiring, num_blueprints: int) -> Live:
    """Of blueprints 0 to B - 1; the last, the no-op, never learns or counts."""
    is_grown = (wiring.blueprint >= 0) & (wiring.blueprint < num_blueprints - 1)
    is_live = (wiring.isolated | (wiring.alpha > 0)) & is_grown
    kind = torch.where(is_live, wiring.algorithm, len(Blend)).flatten()
    order = kind.argsort(stable=True)
    grown = torch.where(is_live, wiring.blueprint, -1).flatten()
    counts = torch.cat(
        [
            (wiring.isolated & is_live).sum()[None],
            (kind == torch.arange(len(Blend), device=kind.device)[:, None]).sum(dim=1),
            (grown == torch.arange(num_blueprints, device=kind.device)[:, None]).sum(dim=1),
        ]
    )
    with sync_point("hosts.live"):
        isolated, add, multiply, gate, *blueprints = counts.tolist()
    rows = order[: add + multiply + gate]
    return Live(
        rows=rows,
        owner=rows // wiring.alpha.shape[1],
        blueprint=wiring.blueprint.flatten().index_select(0, rows),
        alpha=wiring.alpha.flatten().index_select(0, rows),
        isolated=wiring.isolated.flatten().index_select(0, rows),
        multiply=slice(add, add + multiply),
        gate=slice(add + multiply, len(rows)),
        any_isolated=isolated > 0,
        counts=tuple(blueprints),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Of one minibatch."""

    loss: Tensor  # N
    hosts: Sequence[Tensor]  # N ...
    branches: Sequence[Tensor]  # R ...


def learned(found: Gradients, present: Live, num_slots: int, sizes: tuple[int, Tensor]) -> Learned:
    """What a minibatch's gradients show; sizes: parameters of a host, and of each blueprint."""
    host, branch = squared_norm(found.hosts), squared_norm(found.branches)
    total = host.index_add(0, present.owner, branch)
    host_size, branch_sizes = sizes
    per_weight = (branch / branch_sizes.index_select(0, present.blueprint)).sqrt()
    host_per_weight = (host / host_size).sqrt().index_select(0, present.owner)

    def by_slot(values: Tensor) -> Tensor:
        everywhere = values.new_full((len(host) * num_slots,), torch.nan)
        return everywhere.index_copy_(0, present.rows, values).view(len(host), num_slots)

    return Learned(
        loss=found.loss,
        is_finite=found.loss.isfinite() & total.isfinite(),
        health=by_slot(
            torch.minimum(per_weight, host_per_weight) / torch.maximum(per_weight, host_per_weight)
        ),
        ratio=by_slot(per_weight / host_per_weight),
        share=by_slot((branch / total.index_select(0, present.owner)).sqrt()),
    )
