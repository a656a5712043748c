"""Rules that do not learn: legal through whole episodes, and each does what its description states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from overwatch.catalog.stages import Stage
from overwatch_rl.types import Observation, WorldSpec
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import play
from overwatch_rl.worlds.morphogenesis.actions import HEADS, Op
from overwatch_rl.worlds.morphogenesis.baselines import (
    Heuristic,
    LargestGradient,
    best_schedule,
    rules,
    schedules,
)
from overwatch_rl.worlds.morphogenesis.config import MorphogenesisConfig
from overwatch_rl.worlds.morphogenesis.hosts.blueprints import MLP, NOOP
from overwatch_rl.worlds.morphogenesis.world import Morphogenesis

SLOTS = 2
GROWN = [one.id for one in MLP if one.id != NOOP]


def world(envs: int = 4) -> Morphogenesis:
    """A small one."""
    return Morphogenesis(WorldConfig(num_envs=envs), MorphogenesisConfig(slots=SLOTS))


@pytest.mark.parametrize("name", ["heuristic", "largest-gradient"])
def test_a_rule_is_legal_through_an_episode_and_grows(name: str) -> None:
    """The world refuses what its mask forbids; seeds fossilise, within what the rule may grow."""
    made = world()
    played = play(made, rules(made)[name], seed=3)

    assert float(played.fossils.double().mean()) > 0
    assert name != "largest-gradient" or int(played.fossils.max()) == 1


def test_schedules_are_each_blueprint_in_one_slot_and_in_more() -> None:
    """All of the grid, by name."""
    names = {f"{one} x {count}" for one in GROWN for count in (1, 2)}
    assert set(schedules(world().spec)) == names


def test_the_best_schedule_is_that_of_the_highest_return() -> None:
    """In the episodes of its seed."""
    made = Morphogenesis(WorldConfig(num_envs=2), MorphogenesisConfig(slots=1, steps=18))
    returns = {name: play(made, act, 5).mean for name, act in schedules(made.spec).items()}
    name, _ = best_schedule(made, 5)

    assert returns[name] == max(returns.values())
    assert len(set(returns.values())) == len(GROWN)


def test_the_largest_gradient_chooses_blueprint_and_slot() -> None:
    """In each env for itself; where it has grown its seeds, it waits."""
    made = world()
    seen = made.reset(1)
    norms = made.gradients().nan_to_num(nan=0.0)
    actions = LargestGradient(world=made, seeds=1)(seen)

    assert (actions[:, 0] == Op.GERMINATE).all()
    most = norms.flatten(1).argmax(dim=1)
    assert torch.equal(actions[:, HEADS.index("slot")], most // len(MLP))
    assert torch.equal(actions[:, HEADS.index("blueprint")], most % len(MLP))
    assert (LargestGradient(world=made, seeds=0)(seen)[:, 0] == Op.WAIT).all()


@dataclass
class Seen:
    """Facts as they are given."""

    spec: WorldSpec
    given: Mapping[str, Tensor]

    def facts(self) -> Mapping[str, Tensor]:
        """Those."""
        return self.given

    def gradients(self) -> Tensor:
        """None."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("stages", "contributions", "age", "stalled", "expected"),
    [
        ((Stage.DORMANT, Stage.DORMANT), (None, None), 0, 3, (Op.GERMINATE, 0)),
        ((Stage.DORMANT, Stage.DORMANT), (None, None), 0, 2, (Op.WAIT, 0)),
        ((Stage.FOSSILISED, Stage.DORMANT), (0.02, None), 9, 3, (Op.GERMINATE, 1)),
        ((Stage.FOSSILISED, Stage.DORMANT), (0.001, None), 9, 3, (Op.WAIT, 0)),
        ((Stage.DORMANT, Stage.HOLDING), (None, 0.02), 2, 0, (Op.FOSSILISE, 1)),
        ((Stage.DORMANT, Stage.HOLDING), (None, 0.001), 2, 0, (Op.WAIT, 0)),
        ((Stage.DORMANT, Stage.HOLDING), (None, 0.001), 3, 0, (Op.PRUNE, 1)),
        ((Stage.DORMANT, Stage.TRAINING), (None, 0.1), 4, 0, (Op.ADVANCE, 1)),
        ((Stage.DORMANT, Stage.TRAINING), (None, 0.1), 12, 0, (Op.PRUNE, 1)),
    ],
)
def test_the_heuristic_follows_its_rules(
    stages: tuple[Stage, ...],
    contributions: tuple[float | None, ...],
    age: int,
    stalled: int,
    expected: tuple[Op, int],
) -> None:
    """One case each, of one env with two slots; every move that its stages know is legal."""
    spec = world(envs=1).spec
    moves = {
        Stage.DORMANT: (Op.GERMINATE,),
        Stage.TRAINING: (Op.ADVANCE, Op.PRUNE),
        Stage.HOLDING: (Op.FOSSILISE, Op.PRUNE),
    }
    legal = torch.zeros(len(Op), SLOTS, dtype=torch.bool)
    for slot, stage in enumerate(stages):
        for op in moves.get(stage, ()):
            legal[op, slot] = True
    ops = legal.any(dim=1)
    ops[Op.WAIT] = True
    arguments = [ops[:, None].expand(-1, len(head.labels)).flatten() for head in spec.action.heads[2:]]  # type: ignore[union-attr]  # factored
    facts = {
        "slot_stage": torch.tensor([[stage.code for stage in stages]], dtype=torch.uint8),
        "slot_contribution": torch.tensor([[torch.nan if one is None else one for one in contributions]]),
        "slot_age": torch.full((1, SLOTS), age, dtype=torch.int32),
        "stalled_steps": torch.tensor([stalled], dtype=torch.int32),
    }
    mask = torch.cat([ops, legal.flatten(), *arguments])[None]
    seen = Observation(features=torch.zeros(1, 1), mask=mask)
    heuristic = Heuristic(world=Seen(spec, facts), blueprint=1)
    [action] = heuristic(seen).tolist()

    assert (Op(action[0]), action[1]) == expected
    assert action[HEADS.index("blueprint")] == 1
    [other] = replace(heuristic, blueprint=2)(seen).tolist()
    assert other[HEADS.index("blueprint")] == 2
