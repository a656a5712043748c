"""A whole learner and an actor over a real replay server, for every algorithm; what DQN samples there."""

from pathlib import Path
from typing import Any

import pytest
import torch

from overwatch_rl.actor.process import TABLE
from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.table import ALGORITHMS
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.replay.settings import table_words
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.replayed import Local, Replayed
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from tests.overwatch_rl.learner.flying import Flying
from tests.overwatch_rl.learner.whole import ENVS, same, world
from tests.overwatch_rl.replay.serving import served

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"epochs": 1, "minibatches": 2},
    "dqn": {"hidden": 8, "batch": 8, "gradient_steps": 6, "target_every": 4, "capacity": 600, "first_at": 70},
}
"""Updates of a few milliseconds."""


def config(algorithm: str, **given: Any) -> LearnerConfig:
    """One of CartPole, with heartbeats more often than a run may have them."""
    small = {
        "world": "gym:CartPole-v1", "seed": 3, "algorithm": algorithm, algorithm: SMALL[algorithm],
        "batch": {"steps": 8, "envs": ENVS, "ahead": 0}, "checkpoint": {"every_steps": 64},
    }  # fmt: skip
    return learner_config(small, given).model_copy(update={"heartbeat_s": 0.1})


def tables(given: LearnerConfig) -> tuple[str, ...]:
    """As `overwatch-rl cluster` starts its replay server."""
    table = given.table(TABLE)
    return (TABLE if table is None else table_words(table),)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_of_the_table_learns_from_a_replay_server(tmp_path: Path, name: str) -> None:
    """By its row alone; the actor checks each version that it acts with, and a checkpoint is kept."""
    given = config(name)
    with (
        served(tmp_path, tables=tables(given)) as replay,
        Flying(tmp_path, given, replay.address) as flying,
    ):
        before = {key: value.clone() for key, value in flying.loop.acting().items()}
        flying.more(4)
        flying.until(flying.saved, "a checkpoint is kept")
        after = flying.loop.acting()
    assert len(flying.sent.versions) >= 4
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert flying.meter.counts["sgd_steps"] >= 4
    assert not any("Error" in line for line in flying.lines())


def in_one_process(given: LearnerConfig, updates: int) -> dict[str, torch.Tensor]:
    """What `overwatch-rl train --algorithm dqn` holds after as many gradient updates."""
    made, learned = world(given.world), given.learned
    assert isinstance(learned, DQNConfig)
    algorithm = Replayed(
        made.spec, DQN(made.spec, learned, seed=given.seed), Local(made.spec, learned, given.seed)
    )
    rollouts = TrainerConfig(updates=given.head_start + updates, steps=given.batch.steps, seed=given.seed)
    Trainer(made, algorithm, rollouts, Silent(), lambda: None).run()
    return algorithm.state_dict()


@pytest.mark.timeout(300)
def test_an_actor_that_takes_turns_learns_what_one_process_learns_to_the_bit(tmp_path: Path) -> None:
    """Weights, target, moments, exploration and counts, after the memory was overwritten once."""
    updates, given = 30, config("dqn", dqn={"epsilon_steps": 400, "beta_steps": 2000})
    with (
        served(tmp_path, tables=tables(given)) as replay,
        Flying(tmp_path, given, replay.address, updates=updates, patience_s=60.0) as flying,
    ):
        flying.until(lambda: flying.outcome == "completed", "it is done")
        found = flying.loop.algorithm.state_dict()
    alone = in_one_process(given, updates)
    differing = [name for name in alone if not torch.equal(found[name], alone[name])]
    assert differing == []
    assert same(found, alone)
    assert int(found["counts"][0]) == flying.loop.env_steps == (given.head_start + updates) * given.rows
