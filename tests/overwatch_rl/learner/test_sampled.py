"""A whole learner and an actor over a real replay server, for every algorithm; what DQN samples there."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from overwatch.events import NonFiniteSeen, PhaseEnded, TrainingRecovered
from overwatch_rl.actor.service import TABLE
from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.table import ALGORITHMS
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.io import IoError
from overwatch_rl.learner.sampling import TRY_S
from overwatch_rl.orchestrator.core import CLOCKS
from overwatch_rl.orchestrator.states import Pace
from overwatch_rl.replay.chunk import Chunk
from overwatch_rl.replay.settings import table_words
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.replayed import Local, Replayed
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from tests.overwatch_rl.learner.flying import Flying
from tests.overwatch_rl.learner.whole import ENVS, same, world
from tests.overwatch_rl.orchestrator.threaded import Operator, in_thread
from tests.overwatch_rl.replay.serving import served
from tests.overwatch_rl.servers import SlowWire

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


def head_start(given: LearnerConfig) -> int:
    """Batches before the one of the first update."""
    return given.lead // given.rows - given.batch.ahead - 1


def in_one_process(given: LearnerConfig, updates: int) -> dict[str, torch.Tensor]:
    """What `overwatch-rl train --algorithm dqn` holds after as many gradient updates."""
    made, learned = world(given.world), given.learned
    assert isinstance(learned, DQNConfig)
    algorithm = Replayed(
        made.spec, DQN(made.spec, learned, seed=given.seed), Local(made.spec, learned, given.seed)
    )
    rollouts = TrainerConfig(updates=head_start(given) + updates, steps=given.batch.steps, seed=given.seed)
    Trainer(made, algorithm, rollouts, Silent(), lambda: None).run()
    return algorithm.state_dict()


WIRES: dict[str, tuple[float, int, int]] = {
    "well": (0.0, 1, 0),
    "slow": (TRY_S + 0.5, 60, 3),
    "broken": (math.inf, 20, 10),
}
"""How late answers of replay are, which of them, and how many of those are met at least."""


@pytest.mark.sampled(1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("wire", WIRES)
def test_an_actor_that_takes_turns_learns_what_one_process_learns_to_the_bit(
    tmp_path: Path, wire: str
) -> None:
    """Weights, target, moments, exploration and counts, after the memory was overwritten once.

    Whether replay answers at once, some answers come later than the training thread waits, or are lost.
    """
    late_s, every, least = WIRES[wire]
    updates, given = 30, config("dqn", dqn={"epsilon_steps": 400, "beta_steps": 2000})
    with (
        served(tmp_path, tables=tables(given)) as replay,
        SlowWire(replay.port, late_s, every=every) as slow,
        Flying(tmp_path, given, slow.address, updates=updates, patience_s=60.0) as flying,
    ):
        flying.until(lambda: flying.outcome == "completed", "it is done")
        found = flying.loop.algorithm.state_dict()
    assert slow.met >= least
    waits = [one for one in flying.kept.facts if isinstance(one, PhaseEnded) and one.phase == "queue_wait"]
    assert len(waits) >= updates  # what an update waits for samples is measured apart
    alone = in_one_process(given, updates)
    differing = [name for name in alone if not torch.equal(found[name], alone[name])]
    assert differing == []
    assert same(found, alone)
    assert int(found["counts"][0]) == flying.loop.env_steps == (head_start(given) + updates) * given.rows


@pytest.mark.timeout(300)
def test_replay_that_is_gone_leaves_an_update_open_and_commands_obeyed(tmp_path: Path) -> None:
    """Degraded, paused, tuned meanwhile; a table that begins anew is filled again, and env steps go on."""
    given = config("dqn", pause_after_s=1.0)
    with (
        in_thread(pace=Pace(least_s=0.01), clocks=CLOCKS) as orchestrator,
        served(tmp_path, tables=tables(given)) as replay,
        Flying(tmp_path, given, replay.address, orchestrator=orchestrator.url) as flying,
    ):
        operator, gauges = Operator(orchestrator.url), flying.meter.gauges
        flying.more(3)
        replay.kill()
        flying.until(lambda: gauges["degraded"] == 1.0, "it is degraded")
        flying.until(lambda: "paused after 1 s" in (operator.get()["heartbeat"]["notes"] or ""), "it waits")
        still, steps = flying.loop.updates_done, flying.loop.env_steps
        tuned = operator.done(operator.post("/tune", {"values": {"learning_rate": 1e-4}}))
        assert tuned["done"]["changes"]["learning_rate"] == {"before": 2.3e-3, "after": 1e-4}
        assert flying.loop.updates_done == still
        with served(tmp_path, tables=tables(given), port=replay.port):
            flying.more(3)
            assert gauges["degraded"] == 0.0
            (table,) = flying.replay.stats()[0]
        assert flying.loop.env_steps > steps
        assert table.accepted >= 96  # as many as the first update waits for, again
        assert flying.loop.algorithm.dqn.learning_rate == 1e-4  # type: ignore[attr-defined]  # of DQN


@pytest.mark.timeout(300)
def test_commands_change_what_the_algorithm_has_and_a_pause_samples_nothing(tmp_path: Path) -> None:
    """A setting of another algorithm is refused with those there are; the last checkpoint is whole."""
    given = config("dqn")
    with (
        in_thread(pace=Pace(least_s=0.01), clocks=CLOCKS) as orchestrator,
        served(tmp_path, tables=tables(given)) as replay,
        Flying(tmp_path, given, replay.address, orchestrator=orchestrator.url) as flying,
    ):
        operator = Operator(orchestrator.url)
        flying.more(2)
        refused = operator.done(operator.post("/tune", {"values": {"clip": 0.1}}))["done"]
        assert (refused["outcome"], refused["detail"]) == (
            "refused", "values.clip: this algorithm has none to tune; use learning_rate",
        )  # fmt: skip
        operator.done(operator.post("/pause"))
        before = [table.sampled for table in flying.replay.stats()[0]]
        updates, beats = flying.loop.updates_done, flying.meter.counts["heartbeats ok"]
        flying.until(lambda: flying.meter.counts["heartbeats ok"] >= beats + 3, "heartbeats go on")
        assert [table.sampled for table in flying.replay.stats()[0]] == before
        assert flying.loop.updates_done == updates
        operator.done(operator.post("/resume"))
        flying.more(2)
        done = operator.done(operator.post("/terminate"))["done"]
        flying.until(lambda: flying.outcome, "it ends")
    assert (flying.outcome, done["outcome"]) == ("terminated", "done")
    assert str(find_checkpoint(tmp_path).state.version) in done["detail"]


@pytest.mark.timeout(300)
def test_a_learner_goes_on_from_its_checkpoint_with_the_table_that_is_there(tmp_path: Path) -> None:
    """With a lineage of its own, moments and env steps; the manifest states that nothing has a cursor."""
    given = config("dqn")
    with served(tmp_path, tables=tables(given)) as replay:
        with Flying(tmp_path, given, replay.address) as flying:
            flying.more(4)
        cursor = find_checkpoint(tmp_path).state.cursor
        assert cursor is not None
        assert (cursor["experience"], cursor["servers"]) == ("sampled", [])
        steps, updates = flying.loop.env_steps, flying.loop.updates_done
        gradients = flying.loop.algorithm.dqn.gradient_steps  # type: ignore[attr-defined]  # of DQN
        with Flying(tmp_path, given, replay.address) as again:
            assert (again.loop.env_steps, again.loop.updates_done) == (steps, updates)
            assert again.loop.version.lineage == 2
            again.more(3)
        assert again.loop.algorithm.dqn.gradient_steps >= gradients + 18  # type: ignore[attr-defined]
    assert again.loop.env_steps > steps


@pytest.mark.timeout(300)
def test_rewards_that_are_no_numbers_cut_the_rate_roll_back_and_are_drawn_no_more(tmp_path: Path) -> None:
    """Each remedy is an event; the steps stay in the table with next to no priority."""
    given = config("dqn", recovery={"rollback_after": 2, "most_rollbacks": 20})
    with (
        served(tmp_path, tables=tables(given)) as replay,
        Flying(tmp_path, given, replay.address) as flying,
    ):
        flying.until(flying.saved, "a checkpoint is written")
        left = [2]

        def spoil(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
            if not left[0]:
                return chunks
            left[0] -= 1
            return [
                msgspec.structs.replace(
                    one, columns={**one.columns, "reward": np.full(one.steps, np.nan, np.float32).tobytes()}
                )
                for one in chunks
            ]

        flying.sent.change = spoil
        flying.until(lambda: flying.meter.counts["rollbacks"], "it is rolled back")
        skips = [0]

        def is_well() -> bool:
            skips[0] = sum(isinstance(fact, NonFiniteSeen) for fact in list(flying.kept.facts))
            return flying.loop.non_finite.scale < 1.0

        flying.until(is_well, "the rate is cut")
        flying.more(5)
    remedies = [fact.action for fact in flying.kept.facts if isinstance(fact, TrainingRecovered)]
    assert remedies[0] == "learning_rate_cut"
    assert "rollback" in remedies
    assert skips[0] >= 2
    assert flying.meter.counts["samples abandoned"] == 0  # what was learned from is in the table still
    assert all(bool(value.isfinite().all()) for value in flying.loop.acting().values())


def test_a_table_of_another_kind_is_an_error_that_names_the_right_one(tmp_path: Path) -> None:
    """As one that was started by hand for PPO."""
    given = config("dqn")
    with (
        served(tmp_path) as replay,
        Flying(tmp_path, given, replay.address) as flying,
        pytest.raises(IoError, match="holds sequences, and steps are to be sampled: start it with --table"),
    ):
        flying.until(lambda: flying.outcome, "it ends")
