"""What each connected branch is worth, from a host's accuracy with some of its branches alone.

Owns which subsets of the slots are validated and what is concluded from them: contributions, interactions of
pairs, synergy, Shapley values (Shapley 1953). Up to four slots all subsets are validated and the values are
exact. Beyond, they are means over fixed orders of the slots, each beside its reverse (Castro et al. 2009;
antithetic pairs as in Mitchell et al. 2022): exact where branches interact in pairs at most, else an
estimate, which still adds up to the whole gain. Pure; must not know hosts or stages.

Shape letters: N hosts, K slots, M subsets.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import factorial
from typing import Final

import torch
from torch import Tensor

EXACT_SLOTS: Final = 4
"""Slots up to which all subsets are validated: 16."""
MAX_STARTS: Final = 8
"""Orders that are begun at different slots, each beside its reverse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Of one moment; NaN for slots without a connected branch."""

    baseline: Tensor  # N, accuracy of the host without any branch
    combined: Tensor  # N, accuracy with all of them
    individual: Tensor  # N K, what each adds to the host alone
    pairs: Tensor  # N K K, what two add together beyond what each adds alone; NaN on the diagonal
    synergy: Tensor  # N, what all add together beyond what each adds alone
    shapley: Tensor  # N K, each one's fair share of all that they add
    interaction: Tensor  # N K, the sum of its pairs
    boost: Tensor  # N K, the largest of its pairs; 0 where none is positive


def subsets_of(slots: int) -> Tensor:
    """M K bool: the subsets to validate; the first has no slot and the last has all.

    All of them up to four slots. Beyond: each slot alone, each pair, and the beginnings of the fixed orders;
    41 for six slots. Raises `ValueError` without a slot.
    """
    if slots < 1:
        raise ValueError(f"slots is {slots}; attribution needs at least 1")
    return torch.tensor([[slot in subset for slot in range(slots)] for subset in _subsets(slots)])


def attribute(accuracies: Tensor, subsets: Tensor, live: Tensor) -> Attribution:
    """Conclude from `accuracies` N M of `subsets_of` K; `live` N K bool, where a branch is connected.

    Raises `ValueError` where the subsets are others.
    """
    slots = subsets.shape[1]
    plan = _plan(slots)
    if subsets.shape[0] != plan.weights.shape[0] or accuracies.shape[1] != subsets.shape[0]:
        raise ValueError(
            f"{accuracies.shape[1]} accuracies of {subsets.shape[0]} subsets; "
            f"subsets_of({slots}) has {plan.weights.shape[0]}"
        )
    device = accuracies.device
    both = live[:, :, None] & live[:, None, :] & ~torch.eye(slots, dtype=torch.bool, device=device)
    baseline, combined = accuracies[:, 0], accuracies[:, -1]
    individual = accuracies[:, plan.alone.to(device)] - baseline[:, None]
    together = accuracies[:, plan.pairs.to(device)] - baseline[:, None, None]
    pairs = together - individual[:, :, None] - individual[:, None, :]
    known = pairs.where(both, 0.0)
    return Attribution(
        baseline=baseline,
        combined=combined,
        individual=individual.where(live, torch.nan),
        pairs=pairs.where(both, torch.nan),
        synergy=combined - baseline - individual.where(live, 0.0).sum(dim=1),
        shapley=(accuracies @ plan.weights.to(device)).where(live, torch.nan),
        interaction=known.sum(dim=2).where(live, torch.nan),
        boost=known.clamp(min=0.0).amax(dim=2).where(live, torch.nan),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where the accuracies of `subsets_of` go."""

    weights: Tensor  # M K float32: accuracies @ weights are the Shapley values
    alone: Tensor  # K int64, the subset of each slot
    pairs: Tensor  # K K int64, the subset of each two


@cache
def _plan(slots: int) -> _Plan:
    subsets = _subsets(slots)
    place = {subset: number for number, subset in enumerate(subsets)}
    exact = slots <= EXACT_SLOTS
    weights = _exact_weights(place, slots) if exact else _sampled_weights(place, slots)
    return _Plan(
        weights=weights.float(),
        alone=torch.tensor([place[frozenset({slot})] for slot in range(slots)]),
        pairs=torch.tensor(
            [[place[frozenset({one, other})] for other in range(slots)] for one in range(slots)]
        ),
    )


@cache
def _subsets(slots: int) -> tuple[frozenset[int], ...]:
    """In the order of their size."""
    everything = range(slots)
    sizes = range(slots + 1) if slots <= EXACT_SLOTS else (0, 1, 2, slots)
    found = {frozenset(chosen) for size in sizes for chosen in combinations(everything, size)}
    if slots > EXACT_SLOTS:
        found |= {subset for order in _orders(slots) for subset in _beginnings(order)}
    return tuple(sorted(found, key=lambda subset: (len(subset), sorted(subset))))


def _orders(slots: int) -> list[tuple[int, ...]]:
    """Rotations of the slots, and the reverse of each."""
    starts = range(0, slots, -(-slots // MAX_STARTS))
    rotations = [tuple((start + place) % slots for place in range(slots)) for start in starts]
    return [order for rotation in rotations for order in (rotation, rotation[::-1])]


def _beginnings(order: tuple[int, ...]) -> list[frozenset[int]]:
    return [frozenset(order[:length]) for length in range(len(order) + 1)]


def _exact_weights(place: dict[frozenset[int], int], slots: int) -> Tensor:
    """M K: of a subset of size s, (s-1)! (K-s)! / K! for each of its slots, -s! (K-s-1)! / K! for others."""
    weights = torch.zeros(len(place), slots, dtype=torch.float64)
    for subset, number in place.items():
        size = len(subset)
        for slot in range(slots):
            has = slot in subset
            before = size - 1 if has else size
            share = factorial(before) * factorial(slots - before - 1) / factorial(slots)
            weights[number, slot] = share if has else -share
    return weights


def _sampled_weights(place: dict[frozenset[int], int], slots: int) -> Tensor:
    """M K: of each order, what a slot adds to those before it."""
    weights = torch.zeros(len(place), slots, dtype=torch.float64)
    orders = _orders(slots)
    for order in orders:
        for slot, (before, after) in zip(order, pairwise(_beginnings(order)), strict=True):
            weights[place[after], slot] += 1.0 / len(orders)
            weights[place[before], slot] -= 1.0 / len(orders)
    return weights
