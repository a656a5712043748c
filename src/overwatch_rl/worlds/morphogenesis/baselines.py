"""Policies of morphogenesis that learn nothing from rewards: what a trained one has to beat.

Each is a function from an observation to actions, legal by construction; those that look at more than the
mask read the public facts of their world. Nothing is kept between steps. Must not know networks, rewards or
algorithms.

Shape letters: N envs, K slots, P operations, B blueprints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.types import Factored, Observation, WorldSpec
from overwatch_rl.worlds.base import World
from overwatch_rl.worlds.evaluation import play
from overwatch_rl.worlds.morphogenesis.actions import ALPHA_TARGETS, HEADS, NO_OP, Op
from overwatch_rl.worlds.schedules import Act, Schedule

WORTH: Final = 0.01
"""Accuracy that a seed has to contribute for the heuristic to keep it, and to grow another."""
PATIENCE: Final = 3
"""Steps without a better accuracy before the heuristic grows a seed."""
_LONG: Final = 12
"""Steps of training after which the heuristic prunes a seed that no gate lets on."""


class Growing(Protocol):
    """What rules look at, beside the mask."""

    @property
    def spec(self) -> WorldSpec:
        """What the world is."""
        ...

    def facts(self) -> Mapping[str, Tensor]:
        """As columns of a step, of what the policy sees now."""
        ...

    def gradients(self) -> Tensor:
        """N K B, of `growth.gradients`, in dormant slots."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristic:
    """Grow one seed after another while each is worth it, keep what contributes, prune what does not."""

    world: Growing
    blueprint: int | None = None
    """Which it grows; `None` for the first that may be grown."""

    def __call__(self, observation: Observation) -> Tensor:
        """N 8 int64."""
        facts, legal = self.world.facts(), _legal_slots(self.world.spec, observation)
        stage, contribution = facts["slot_stage"], facts["slot_contribution"]
        is_worth = contribution >= WORTH
        is_fossil = stage == Stage.FOSSILISED.code
        is_late = (stage == Stage.TRAINING.code) & (facts["slot_age"] >= _LONG)
        is_useless = (stage == Stage.HOLDING.code) & ~is_worth & (facts["slot_age"] >= PATIENCE)
        stalls = facts["stalled_steps"] >= PATIENCE
        pays = (is_worth | ~is_fossil).all(dim=1)
        wishes = (
            (Op.FOSSILISE, legal[:, Op.FOSSILISE] & is_worth),
            (Op.PRUNE, legal[:, Op.PRUNE] & (is_late | is_useless)),
            (Op.ADVANCE, legal[:, Op.ADVANCE]),
            (Op.GERMINATE, legal[:, Op.GERMINATE] & (stalls & pays)[:, None]),
        )
        own = int(_growable(self.world.spec).float().argmax()) if self.blueprint is None else self.blueprint
        return _first(wishes, torch.full_like(facts["stalled_steps"], own))


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestGradient:
    """Grow seeds as early as gates allow, each the blueprint and in the slot of the largest gradient.

    Up to `seeds`, by Evci et al. 2022, "GradMax: growing neural networks using gradient information".
    """

    world: Growing
    seeds: int = 1

    def __call__(self, observation: Observation) -> Tensor:
        """N 8 int64."""
        legal = _legal_slots(self.world.spec, observation)
        grown = (self.world.facts()["slot_blueprint"] >= 0).sum(dim=1)
        free = legal[:, Op.GERMINATE] & (grown < self.seeds)[:, None]
        blueprint, slot = torch.zeros_like(grown), free
        if bool(free.any()):
            norms = self.world.gradients().nan_to_num(nan=0.0)
            most = (
                norms.masked_fill(~(free[..., None] & _growable(self.world.spec)), -1.0)
                .flatten(1)
                .argmax(dim=1)
            )
            slots = torch.arange(free.shape[1], device=free.device)
            blueprint = most % norms.shape[2]
            slot = free & (slots == (most // norms.shape[2])[:, None])
        wishes = (
            (Op.FOSSILISE, legal[:, Op.FOSSILISE]),
            (Op.ADVANCE, legal[:, Op.ADVANCE]),
            (Op.GERMINATE, slot),
        )
        return _first(wishes, blueprint)


def schedules(spec: WorldSpec) -> dict[str, Act]:
    """Fixed schedules: each blueprint in the first one, two … of the slots."""
    action = _action_of(spec)
    slots, blueprints = (action.heads[HEADS.index(name)].labels for name in ("slot", "blueprint"))
    return {
        f"{blueprint} x {count}": Schedule(spec=action, blueprint=number, num_slots=count)
        for number, blueprint in enumerate(blueprints)
        if blueprint != NO_OP
        for count in range(1, len(slots) + 1)
    }


def best_schedule(world: World, seed: int) -> tuple[str, Act]:
    """The fixed schedule with the highest mean return over one episode of every env, and its name."""
    found = schedules(world.spec)
    returns = {name: play(world, act, seed).mean for name, act in found.items()}
    best = max(returns, key=lambda name: returns[name])
    return best, found[best]


def rules(world: Growing) -> dict[str, Act]:
    """The policies that look at this world, by name."""
    return {"heuristic": Heuristic(world=world), "largest-gradient": LargestGradient(world=world)}


def _action_of(spec: WorldSpec) -> Factored:
    if not isinstance(spec.action, Factored):
        raise AssertionError("a world with slots has a factored action")  # noqa: TRY004 a bug, no input
    return spec.action


def _legal_slots(spec: WorldSpec, observation: Observation) -> Tensor:
    """N P K bool."""
    if observation.mask is None:
        raise AssertionError("a world with slots has a mask of legal choices")
    return _action_of(spec).unpack(observation.mask)[HEADS.index("slot")]


def _growable(spec: WorldSpec) -> Tensor:
    """B bool: which blueprints may be grown."""
    labels = _action_of(spec).heads[HEADS.index("blueprint")].labels
    return torch.tensor([label != NO_OP for label in labels])


def _first(wishes: Sequence[tuple[Op, Tensor]], blueprint: Tensor) -> Tensor:
    """N 8 int64: the first operation that has a slot (N K bool each), in its first slot; else wait."""
    actions = torch.zeros(len(blueprint), len(HEADS), dtype=torch.int64, device=blueprint.device)
    actions[:, HEADS.index("blueprint")] = blueprint.long()
    actions[:, HEADS.index("alpha_target")] = ALPHA_TARGETS.index(1.0)
    for op, slots in reversed(wishes):
        able = slots.any(dim=1)
        actions[:, 0] = torch.where(able, int(op), actions[:, 0])
        actions[:, 1] = torch.where(able, slots.to(torch.uint8).argmax(dim=1), actions[:, 1])
    return actions
