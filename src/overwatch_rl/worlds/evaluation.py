"""How good a policy is: one episode of every env, beside policies that do not learn.

The same seed gives every policy the same episodes: same hosts, same order of data. A policy is a function
from an observation to actions, legal by construction; `always_wait` and `uniform` fit any world, `Schedule`
knows the operations of morphogenesis. Must not know networks or algorithms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.types import ActionSpec, Box, Factored, Observation, WorldSpec
from overwatch_rl.worlds.base import World
from overwatch_rl.worlds.morphogenesis.actions import ALPHA_TARGETS, HEADS, NO_OP, Op

MAX_STEPS: Final = 100_000
Act: TypeAlias = Callable[[Observation], Tensor]
"""From an observation to actions, N H int64 or N D float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Finished episodes, an env each."""

    returns: Tensor  # N float64, NaN where a reward of the episode was not a finite number
    has_metric: bool
    metric: Tensor  # N float32, at the last step
    fossils: Tensor  # N int64, seeds fossilised; 0 in a world without slots

    @property
    def mean(self) -> float:
        """Mean of the returns that are known; NaN without any."""
        return float(self.known.mean())

    @property
    def known(self) -> Tensor:
        """The returns that are known."""
        return self.returns[self.returns.isfinite()]

    @property
    def standard_error(self) -> float:
        """Standard error of the mean return; NaN of a single episode."""
        return float(self.known.std() / len(self.known) ** 0.5) if len(self.known) > 1 else math.nan


def play(world: World, act: Act, seed: int) -> Played:
    """Play until every env has ended its first episode; raises `RuntimeError` when one never does."""
    observation = world.reset(seed)
    num_envs = len(observation.features)
    returns = torch.zeros(num_envs, dtype=torch.float64)
    metric, has_metric = torch.zeros(num_envs), False
    fossils = torch.zeros(num_envs, dtype=torch.int64)
    running = torch.ones(num_envs, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        step = world.step(act(observation))
        reward = step.reward.cpu().double()
        returns += reward.where(reward.isfinite(), torch.nan).where(running, 0.0)
        has_metric = "metric" in step.columns
        if has_metric:
            metric = torch.where(running, step.columns["metric"].cpu(), metric)
        if "slot_stage" in step.columns:
            standing = (step.columns["slot_stage"] == Stage.FOSSILISED.code).sum(dim=1)
            fossils = torch.where(running, standing, fossils)
        running &= ~(step.terminated | step.truncated).cpu()
        if not bool(running.any()):
            return Played(returns=returns, has_metric=has_metric, metric=metric, fossils=fossils)
        observation = step.observation
    raise RuntimeError(f"an episode did not end within {MAX_STEPS} steps")


def always_wait(spec: ActionSpec) -> Act:
    """Choose the first operation for ever, or the middle of the box."""

    def act(observation: Observation) -> Tensor:
        """Return an action for each env."""
        """N zeros, or the middle."""
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
        """N: one choice of each row, 0 where none is legal."""
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


def schedules(spec: WorldSpec) -> dict[str, Act]:
    """Fixed schedules of a world with slots: each blueprint in the first one, two … of them."""
    if not isinstance(spec.action, Factored):
        raise AssertionError("a world with slots has a factored action")  # noqa: TRY004 a bug, no input
    slots, blueprints = (spec.action.heads[HEADS.index(name)].labels for name in ("slot", "blueprint"))
    return {
        f"{blueprint} x {count}": Schedule(spec=spec.action, blueprint=number, num_slots=count)
        for number, blueprint in enumerate(blueprints)
        if blueprint != NO_OP
        for count in range(1, len(slots) + 1)
    }


def best_schedule(world: World, seed: int) -> tuple[str, Act]:
    """The fixed schedule with the highest mean return over one episode of every env, and its name."""
    acts = schedules(world.spec)
    returns = {name: play(world, act, seed).mean for name, act in acts.items()}
    best = max(returns, key=lambda name: returns[name])
    return best, acts[best]
