"""Policies that do not learn, to measure a trained one against.

Each is a function from an observation to actions, legal by construction. `always_wait` and `uniform` fit any
world; `Schedule` knows the operations of morphogenesis. Must not know networks or algorithms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from overwatch_rl.types import ActionSpec, Box, Factored, Observation
from overwatch_rl.worlds.morphogenesis.actions import ALPHA_TARGETS, HEADS, Op

Act: TypeAlias = Callable[[Observation], Tensor]
"""From an observation to actions, N H int64 or N D float32."""


def always_wait(spec: ActionSpec) -> Act:
    """Choose the first operation for ever, or the middle of the box."""

    def act(observation: Observation) -> Tensor:
        if isinstance(spec, Box):
            low, high = _bounds(spec)
            return ((low + high) / 2).expand(len(observation.features), -1)
        return torch.zeros(len(observation.features), spec.num_heads, dtype=torch.int64)

    return act


def _bounds(spec: Box) -> tuple[Tensor, Tensor]:
    """Both ends, D each; a side without an end is taken as 1 from 0."""
    low, high = torch.tensor(spec.low), torch.tensor(spec.high)
    return torch.where(low.isfinite(), low, -1.0), torch.where(high.isfinite(), high, 1.0)


def uniform(spec: ActionSpec, generator: torch.Generator) -> Act:
    """Choose an operation, then each of its arguments, uniformly among the legal ones."""

    def draw(legal: Tensor) -> Tensor:
        weights = legal.float() + (~legal.any(dim=1, keepdim=True)).float()
        return torch.multinomial(weights, 1, generator=generator).squeeze(1)

    def act(observation: Observation) -> Tensor:
        if isinstance(spec, Box):
            low, high = _bounds(spec)
            rows = torch.rand(len(observation.features), len(low), generator=generator)
            return low + (high - low) * rows
        mask = observation.mask
        if mask is None:
            mask = torch.ones(len(observation.features), spec.num_outputs, dtype=torch.bool)
        blocks = spec.unpack(mask)
        ops = draw(blocks[0])
        everyone = torch.arange(len(ops))
        arguments = [draw(block[everyone, ops]) for block in blocks[1:]]
        return torch.stack([ops, *arguments], dim=1)

    return act


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Grow one blueprint in the first slots as early as the gates allow, and keep what has grown."""

    spec: Factored
    blueprint: int | None = None
    """Its number; `None` for the first that may be grown."""
    num_slots: int | None = None
    """How many slots to fill; `None` for all."""

    def __call__(self, observation: Observation) -> Tensor:
        """N 8 int64: move the first seed that can move, else germinate, else wait."""
        if observation.mask is None:
            raise AssertionError("a world with slots has a mask of legal choices")
        blocks = self.spec.unpack(observation.mask)
        legal = blocks[HEADS.index("slot")].clone()
        if self.num_slots is not None:
            legal[:, Op.GERMINATE, self.num_slots :] = False
        actions = torch.zeros(len(legal), len(HEADS), dtype=torch.int64)
        place = HEADS.index("blueprint")
        first = blocks[place][:, Op.GERMINATE].to(torch.uint8).argmax(dim=1)
        actions[:, place] = first if self.blueprint is None else self.blueprint
        actions[:, HEADS.index("alpha_target")] = ALPHA_TARGETS.index(1.0)
        for op in (Op.GERMINATE, Op.ADVANCE, Op.FOSSILISE):
            able = legal[:, op].any(dim=1)
            actions[able, 0] = int(op)
            actions[able, 1] = legal[able, op].float().argmax(dim=1)
        return actions


def baselines(spec: ActionSpec, generator: torch.Generator) -> dict[str, Act]:
    """The policies that fit a world, by name."""
    acts: dict[str, Act] = {"always-wait": always_wait(spec), "random": uniform(spec, generator)}
    if isinstance(spec, Factored) and "germinate" in spec.heads[0].labels:
        acts["schedule"] = Schedule(spec=spec)
    return acts
