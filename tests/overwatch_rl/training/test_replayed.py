"""A memory between a trainer and DQN: what is remembered, what errors become, and when nothing is learned."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.replay.base import Sampled
from overwatch_rl.replay.chunk import Chunk
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.replayed import TABLE, Local, Replayed
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import World, WorldConfig

CONFIG = DQNConfig(hidden=8, batch=8, gradient_steps=4, target_every=4, capacity=200, first_at=60, alpha=1.0)
ENVS, STEPS = 2, 20


class Watching(Local):
    """Remembers as the other does, and what was asked of it."""

    def __init__(self, world: World, config: DQNConfig) -> None:
        super().__init__(world.spec, config, seed=0)
        self.chunks: list[Chunk] = []
        self.sampled: list[Sampled] = []
        self.priorities: list[np.ndarray] = []

    def append(self, chunks: Sequence[Chunk]) -> None:
        """As the other, kept."""
        super().append(chunks)
        self.chunks += chunks

    def sample(self, count: int, exponent: float) -> Sampled | None:
        """As the other, kept."""
        found = super().sample(count, exponent)
        if found is not None:
            self.sampled.append(found)
        return found

    def update_priorities(self, sampled: Sampled, priorities: np.ndarray) -> None:
        """As the other, kept."""
        self.priorities.append(priorities)
        super().update_priorities(sampled, priorities)


class Numbers(Silent):
    """The numbers of each update."""

    def __init__(self) -> None:
        self.updates: list[dict[str, float]] = []

    def update(self, index: int, values: object) -> None:  # noqa: ARG002 they come in order
        """Keep them."""
        self.updates.append(dict(values))  # type: ignore[call-overload]  # a mapping


def trained(updates: int, config: DQNConfig = CONFIG) -> tuple[Watching, Replayed, Numbers]:
    """So many updates in a world whose episodes end."""
    world = make("gym:CartPole-v1", WorldConfig(num_envs=ENVS), {})
    memory, numbers = Watching(world, config), Numbers()
    algorithm = Replayed(world.spec, DQN(world.spec, config, seed=0), memory)
    Trainer(world, algorithm, TrainerConfig(updates=updates, steps=STEPS), numbers, lambda: None).run()
    return memory, algorithm, numbers


def test_nothing_is_learned_before_enough_is_remembered() -> None:
    """One update of 40 steps has no numbers of learning, the second of 80 has; the weights moved then."""
    _, algorithm, numbers = trained(2)
    assert "value_loss" not in numbers.updates[0]
    assert numbers.updates[1]["value_loss"] > 0.0
    assert algorithm.dqn.gradient_steps == CONFIG.gradient_steps
    assert algorithm.dqn.steps == 2 * STEPS * ENVS
    assert "minibatches_not_finite" not in numbers.updates[1]


def test_every_step_is_remembered_once_in_order() -> None:
    """By env and episode the chunks join up, and those whose episode terminated end there."""
    memory, _, _ = trained(4)
    assert sum(chunk.steps for chunk in memory.chunks) == 4 * STEPS * ENVS
    for env in range(ENVS):
        mine = [chunk for chunk in memory.chunks if chunk.env == f"0/{env}"]
        for before, after in itertools.pairwise(mine):
            goes_on = before.end == "cut"
            expected = (
                (before.episode, before.first_step + before.steps) if goes_on else (before.episode + 1, 0)
            )
            assert (after.episode, after.first_step) == expected
    assert {chunk.end for chunk in memory.chunks} >= {"cut", "terminated"}
    assert [chunk.version for chunk in memory.chunks] == sorted(chunk.version for chunk in memory.chunks)


def test_errors_become_the_priorities_of_the_steps_they_are_of() -> None:
    """What was drawn is what is updated; a step whose error is larger is then drawn more often."""
    memory, _, _ = trained(4)
    assert len(memory.priorities) == len(memory.sampled) == 3 * CONFIG.gradient_steps
    assert all((one >= 0.0).all() and len(one) == CONFIG.batch for one in memory.priorities)
    last = {}
    for sampled, priorities in zip(memory.sampled, memory.priorities, strict=True):
        last |= dict(zip(sampled.slots.tolist(), priorities.tolist(), strict=True))
    found = memory.replay.sample(TABLE, 20_000, 0.0)
    assert found is not None
    slots = np.array(sorted(last))
    counts = np.array([(found.slots == slot).sum() for slot in slots])
    assert np.corrcoef(counts, [last[slot] for slot in slots])[0, 1] > 0.95


def test_errors_that_are_not_finite_do_not_spoil_the_table() -> None:
    """Weights of NaN give errors of NaN: they are counted as such, and sampling goes on."""
    world = make("gym:CartPole-v1", WorldConfig(num_envs=ENVS), {})
    memory, dqn = Watching(world, CONFIG), DQN(world.spec, CONFIG, seed=0)
    with torch.no_grad():
        next(iter(dqn.policy.parameters())).fill_(torch.nan)
    facts = []

    class Facts(Numbers):
        def fact(self, event: object) -> None:
            """Keep it."""
            facts.append(event)

    Trainer(
        world, Replayed(world.spec, dqn, memory), TrainerConfig(updates=3, steps=STEPS), Facts(), lambda: None
    ).run()
    assert len(memory.sampled) == 2 * CONFIG.gradient_steps
    assert all((one == 0.0).all() for one in memory.priorities)
    assert [getattr(fact, "count", None) for fact in facts if type(fact).__name__ == "NonFiniteSeen"] == [
        4,
        4,
    ]


def test_the_same_seed_gives_the_same_numbers() -> None:
    """Of the draws from the table too; another seed others."""
    one, same = (trained(3)[2].updates[-1]["value_loss"] for _ in range(2))
    assert one == same
    assert trained(3, replace(CONFIG, learning_rate=1e-3))[2].updates[-1]["value_loss"] != one


def test_a_rollout_that_the_table_cannot_hold_ends_the_run_with_its_reason() -> None:
    """Rather than training without it."""
    with pytest.raises(ValueError, match=r"40 steps of .* holds 30 steps"):
        trained(1, replace(CONFIG, capacity=30, first_at=10))
