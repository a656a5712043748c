"""What a training run says: the trainer's own numbers, every fact, in files and to the tower."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from overwatch_rl.algos.ppo import PPOConfig
from overwatch_rl.envs import make
from overwatch_rl.envs.base import WorldConfig
from overwatch_rl.trainer import Trainer, TrainerConfig

from overwatch.catalog import Scope, find
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    EarlyStopped,
    EpisodeEnded,
    GateEvaluated,
    Measured,
    PhaseEnded,
    RunFinished,
    SeedStageChanged,
)
from overwatch.sdk.frames import Update
from overwatch_rl.telemetry import Fanout, Files, Tower, TowerConfig, start_tower
from overwatch_rl.types import UpdateReport
from tests.overwatch_rl.recording import KeptRun

NUM_ENVS, NUM_SLOTS, UPDATES, STEPS = 3, 2, 2, 60


@dataclass(frozen=True)
class Flown:
    """A short run that reported to both."""

    run: KeptRun
    lines: list[dict[str, float | None]]
    summary: dict[str, object]


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Flown:
    """Two updates of three envs, with early stops on."""
    folder = tmp_path_factory.mktemp("flown")
    env = make("morphogenesis", WorldConfig(num_envs=NUM_ENVS, num_slots=NUM_SLOTS))
    run = KeptRun(NUM_ENVS)
    tower = Tower(run, env.action_spec, env.info, "cpu")
    reporter = Fanout([Files(folder), tower])
    config = TrainerConfig(updates=UPDATES, steps=STEPS, ppo=PPOConfig(learning_rate=0.02, target_kl=1e-4))
    trainer = Trainer(env, config, reporter, lambda: None)
    outcome = trainer.run()
    tower.saved(trainer.save(folder, "morphogenesis", NUM_SLOTS), trainer.updates_done, 0.25)
    reporter.close(outcome=outcome)
    reporter.close(outcome="failed")
    lines = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    return Flown(run, lines, json.loads((folder / "summary.json").read_text()))


def test_nothing_was_refused(flown: Flown) -> None:
    """The SDK took every call and every value."""
    assert flown.run.link.refused == []
    assert flown.run.close().refused == 0


def test_the_tower_hears_the_trainers_numbers_to_the_last_bit(flown: Flown) -> None:
    """Every update, every value, under catalogue names; none is a custom name."""
    updates = flown.run.of(Update)

    assert [update.index for update in updates] == [1, 2]
    for update, line in zip(updates, flown.lines, strict=True):
        rows = {name: find(name, Scope.POLICY) for name in line if name != "update"}
        assert {row.name: line[name] for name, row in rows.items() if row is not None} == update.values
        assert None not in rows.values()


def test_every_env_reports_at_every_step(flown: Flown) -> None:
    """Reward, metric, rent, step time and lane, one row an env; the step counts on over updates."""
    envs = [measured for measured in flown.run.of(Measured) if measured.scope is Scope.ENV]

    assert [measured.index for measured in envs] == list(range(1, UPDATES * STEPS + 1))
    for measured in envs:
        assert measured.keys["env_id"].array().tolist() == [0, 1, 2]
        assert measured.values["lane"].words() == ["cpu"] * NUM_ENVS
        assert set(measured.values) == {
            "overwatch.env.reward", "overwatch.env.metric", "overwatch.env.rent", "overwatch.env.step_time",
            "lane",
        }  # fmt: skip
        assert bool((measured.values["overwatch.env.step_time"].array() > 0).all())


def test_every_slot_reports_at_every_step(flown: Flown) -> None:
    """A row a slot; the stages told are those that the facts lead to."""
    told = [measured for measured in flown.run.of(Measured) if measured.scope is Scope.SLOT]
    last = told[-1]

    assert len(told) == UPDATES * STEPS
    assert last.keys["env_id"].array().tolist() == [0, 0, 1, 1, 2, 2]
    assert last.keys["slot"].words() == ["r0c0", "r0c1"] * NUM_ENVS
    for env_id, slot, stage in zip(
        last.keys["env_id"].array(),
        last.keys["slot"].words(),
        last.values["overwatch.slot.stage"].words(),
        strict=True,
    ):
        moves = [
            change.after.value for change in flown.run.of(SeedStageChanged)
            if (change.env_id, change.slot) == (env_id, slot)
        ]  # fmt: skip
        assert stage in {*moves[-1:], "dormant"}


def test_slots_in_which_a_seed_learns_have_a_gradient_health(flown: Flown) -> None:
    """Within 0 and 1 where a seed trains or is connected, its last where it was just pruned, else none."""
    learning = {"training", "blending", "holding", "fossilised"}
    seen = set()
    for told in (measured for measured in flown.run.of(Measured) if measured.scope is Scope.SLOT):
        stages = told.values["overwatch.slot.stage"].words()
        for stage, health in zip(
            stages, told.values["overwatch.slot.gradient_health"].array().tolist(), strict=True
        ):
            known = not math.isnan(health)
            assert stage == "pruned" or known == (stage in learning), (stage, health)
            assert not known or 0 <= health <= 1
            seen.add((stage, known))

    assert {("training", True), ("dormant", False), ("pruned", True)} <= seen


def test_actions_name_only_what_the_operation_uses(flown: Flown) -> None:
    """Waiting has no slot, only germinating has a blueprint."""
    for action in flown.run.of(ActionTaken):
        assert action.slot is not None
        assert action.blueprint is not None
        for op, slot, blueprint in zip(
            action.op.words(), action.slot.words(), action.blueprint.words(), strict=True
        ):
            assert (slot is None) == (op == "wait")
            assert (blueprint is not None) == (op == "germinate")


def test_episodes_add_up(flown: Flown) -> None:
    """Each env's returns are the sums of its rewards; the update's return is their mean."""
    rewards = torch.zeros(NUM_ENVS, dtype=torch.float64)
    ended = flown.run.of(EpisodeEnded)
    envs = [measured for measured in flown.run.of(Measured) if measured.scope is Scope.ENV]
    for number, measured in enumerate(envs, start=1):
        rewards += torch.from_numpy(measured.values["overwatch.env.reward"].array().copy())
        if number % STEPS == 0:
            episode = ended[number // STEPS - 1]
            assert episode.episode_return.array().tolist() == rewards.tolist()
            assert flown.lines[number // STEPS - 1]["return"] == pytest.approx(float(rewards.mean()))
            assert episode.length is not None
            assert episode.length.array().tolist() == [STEPS] * NUM_ENVS
            rewards.zero_()

    assert len(ended) == UPDATES


def test_facts_and_phases_are_told(flown: Flown) -> None:
    """Moves, gates, early stops with their update, three phases an update, two more a step, one end."""
    assert flown.run.of(SeedStageChanged)
    assert flown.run.of(GateEvaluated)
    assert [stop.update for stop in flown.run.of(EarlyStopped)] == [1, 2]
    collecting = ["inference", "env_wait"] * STEPS
    assert [phase.phase for phase in flown.run.of(PhaseEnded)] == [
        *collecting, "collect", "estimate", "update",
    ] * UPDATES  # fmt: skip
    assert [end.outcome for end in flown.run.of(RunFinished)] == ["completed"]


def test_a_policy_that_was_kept_is_a_checkpoint(flown: Flown) -> None:
    """The file, the updates that it holds, its size."""
    (saved,) = flown.run.of(CheckpointSaved)

    assert (saved.update, saved.duration_s) == (UPDATES, 0.25)
    assert saved.size_bytes == Path(saved.path).stat().st_size


def test_the_summary_counts(flown: Flown) -> None:
    """Outcome, updates, steps, episodes, fossils and the last line."""
    fossils = sum(change.after.value == "fossilised" for change in flown.run.of(SeedStageChanged))

    assert flown.summary == {
        "outcome": "completed", "reason": None, "updates": UPDATES, "steps": UPDATES * STEPS,
        "episodes": UPDATES * NUM_ENVS, "fossilised": fossils, "last": flown.lines[-1],
    }  # fmt: skip


def test_an_undefined_value_is_null_in_files_and_nan_towards_the_tower(tmp_path: Path) -> None:
    """JSON has no NaN; the tower tells it from absence."""
    env = make("morphogenesis", WorldConfig(num_envs=1, num_slots=1))
    run = KeptRun()
    reporter = Fanout([Files(tmp_path), Tower(run, env.action_spec, env.info, "cpu")])
    reporter.update(UpdateReport(index=1, values={"return": math.nan}))
    reporter.close(outcome="completed")

    assert json.loads((tmp_path / "updates.jsonl").read_text()) == {"update": 1, "return": None}
    assert math.isnan(run.of(Update)[0].values["overwatch.policy.return"])


def test_a_wrong_endpoint_is_refused_at_the_start() -> None:
    """Before any process is started."""
    env = make("morphogenesis", WorldConfig(num_envs=1, num_slots=1))

    with pytest.raises(ValueError, match="endpoint 'nowhere' is no URL"):
        start_tower(TowerConfig(endpoint="nowhere"), env.action_spec, env.info, 1, {})
