"""Policies that do not learn, to measure a trained one against.

Each is a function from an observation to actions, legal by construction. `always_wait` and `uniform` fit any
world; `Schedule` knows the operations of morphogenesis. Must not know networks or algorithms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from overwatch_rl.envs.lifecycle import Op
from overwatch_rl.types import ActionSpec, Observation

Act: TypeAlias = Callable[[Observation], Tensor]
"""From an observation to actions, N H int64."""


def always_wait(spec: ActionSpec) -> Act:
    """Choose the first operation for ever."""

    def act(observation: Observation) -> Tensor:
        return torch.zeros(len(observation.mask), spec.num_heads, dtype=torch.int64)

    return act


def uniform(spec: ActionSpec, generator: torch.Generator) -> Act:
    """Choose an operation, then each of its arguments, uniformly among the legal ones."""

    def draw(legal: Tensor) -> Tensor:
        weights = legal.float() + (~legal.any(dim=1, keepdim=True)).float()
        return torch.multinomial(weights, 1, generator=generator).squeeze(1)

    def act(observation: Observation) -> Tensor:
        blocks = spec.unpack(observation.mask)
        ops = draw(blocks[0])
        everyone = torch.arange(len(ops))
        arguments = [draw(block[everyone, ops]) for block in blocks[1:]]
        return torch.stack([ops, *arguments], dim=1)

    return act


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Grow one blueprint in the first slots as early as the gates allow, and keep what has grown."""

    spec: ActionSpec
    blueprint: int = 0
    num_slots: int | None = None
    """How many slots to fill; `None` for all."""

    def __call__(self, observation: Observation) -> Tensor:
        """N 3 int64: move the first seed that can move, else germinate, else wait."""
        legal = self.spec.unpack(observation.mask)[1].clone()
        if self.num_slots is not None:
            legal[:, Op.GERMINATE, self.num_slots :] = False
        actions = torch.zeros(len(legal), 3, dtype=torch.int64)
        actions[:, 2] = self.blueprint
        for op in (Op.GERMINATE, Op.ADVANCE, Op.FOSSILISE):
            able = legal[:, op].any(dim=1)
            actions[able, 0] = int(op)
            actions[able, 1] = legal[able, op].float().argmax(dim=1)
        return actions


def baselines(spec: ActionSpec, generator: torch.Generator) -> dict[str, Act]:
    """The policies that fit a world, by name."""
    acts: dict[str, Act] = {"always-wait": always_wait(spec), "random": uniform(spec, generator)}
    if "germinate" in spec.heads[0].labels:
        acts["schedule"] = Schedule(spec=spec)
    return acts
