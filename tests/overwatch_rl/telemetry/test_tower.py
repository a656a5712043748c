"""What a training run emits to the tower: the trainer's own numbers, every fact, each env and slot."""

from dataclasses import dataclass

import pytest
import torch

from overwatch.catalog import Kind, Scope, find, head_of, of_scope
from overwatch.events import (
    ActionTaken,
    CheckpointSaved,
    EarlyStopped,
    EpisodeEnded,
    Event,
    GateEvaluated,
    Measured,
    PhaseEnded,
    RunFinished,
    SeedStageChanged,
)
from overwatch.sdk.frames import Frame, Update
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.reporter import Fanout
from overwatch_rl.telemetry.tower import Tower, TowerConfig, start_tower, words_of
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch.sdk.rollouts.local import Local
from tests.overwatch_rl.kept import Kept

NUM_ENVS, NUM_SLOTS, UPDATES, STEPS = 3, 2, 2, 60
SAVED = CheckpointSaved(at=5, update=2, path="/x", size_bytes=5, duration_s=0.25)


@dataclass(frozen=True)
class Flown:
    """A short run that reported to the tower and to memory."""

    frames: list[Frame]
    events: list[Event]
    kept: Kept
    refused: int

    def of(self, kind: type) -> list[Event]:
        """The events of one kind, in their order."""
        return [event for event in self.events if isinstance(event, kind)]

    def measured(self, scope: Scope) -> list[Measured]:
        """Numbers of a scope."""
        return [event for event in self.events if isinstance(event, Measured) and event.scope is scope]


@pytest.fixture(scope="module")
def flown() -> Flown:
    """Two updates of three envs, with early stops on."""
    world = make("morphogenesis", WorldConfig(num_envs=NUM_ENVS), {"slots": NUM_SLOTS})
    local = Local(words_of(world.spec), NUM_ENVS)
    tower, kept = Tower(local.run, world.spec, "cpu"), Kept()
    reporter = Fanout([tower, kept])
    algorithm = PPO(world.spec, PPOConfig(learning_rate=0.02, target_kl=1e-4), seed=0)
    trainer = Trainer(world, algorithm, TrainerConfig(updates=UPDATES, steps=STEPS), reporter, lambda: None)
    outcome = trainer.run()
    reporter.fact(SAVED)
    frames, events = local.both()
    reporter.close(outcome=outcome)
    more, ends = local.both()
    reporter.close(outcome="failed")
    assert tower.report is not None
    return Flown([*frames, *more], [*events, *ends], kept, tower.report.refused)


def test_nothing_was_refused(flown: Flown) -> None:
    """The SDK took every call and every value."""
    assert flown.refused == 0


def test_the_tower_gets_the_trainers_numbers_to_the_last_bit(flown: Flown) -> None:
    """Every update, every value, under catalogue names; custom are shares of actions and numbers of heads."""
    updates = [frame for frame in flown.frames if isinstance(frame, Update)]

    assert [update.index for update in updates] == [1, 2]
    for update, values in zip(updates, flown.kept.updates, strict=True):
        for name, value in values.items():
            if name != "update":
                row = find(name, Scope.POLICY)
                assert (row is None) is (name.startswith("action/") or head_of(name) is not None), name
                assert update.values[f"overwatch.custom.{name}" if row is None else row.name] == value


def test_every_env_reports_at_every_step(flown: Flown) -> None:
    """Reward, metric, rent and lane, one row an env; the step counts on over updates; no step time."""
    envs = flown.measured(Scope.ENV)

    assert [measured.index for measured in envs] == list(range(1, UPDATES * STEPS + 1))
    assert sorted(measured.at for measured in envs) == [measured.at for measured in envs]
    for measured in envs:
        assert measured.keys["env_id"].array().tolist() == [0, 1, 2]
        rows = {row.name for row in of_scope(Scope.ENV) if row.kind is Kind.GAUGE}
        assert set(measured.values) == rows - {"overwatch.env.return", "overwatch.env.step_time"} | {"lane"}


def test_every_slot_reports_at_every_step_the_stage_that_the_facts_lead_to(flown: Flown) -> None:
    """A row a slot; the last stages are those of the moves."""
    slots = flown.measured(Scope.SLOT)
    last = slots[-1]

    assert len(slots) == UPDATES * STEPS
    assert last.keys["env_id"].array().tolist() == [0, 0, 1, 1, 2, 2]
    for env_id, slot, stage in zip(
        last.keys["env_id"].array(),
        last.keys["slot"].words(),
        last.values["overwatch.slot.stage"].words(),
        strict=True,
    ):
        moves = [
            change.after.value for change in flown.of(SeedStageChanged)
            if isinstance(change, SeedStageChanged) and (change.env_id, change.slot) == (env_id, slot)
        ]  # fmt: skip
        assert stage in {*moves[-1:], "dormant"}


def test_actions_name_only_what_the_operation_uses(flown: Flown) -> None:
    """Waiting has no slot, only germinating has a blueprint."""
    seen = set()
    for action in flown.of(ActionTaken):
        assert isinstance(action, ActionTaken)
        assert action.slot is not None
        assert action.blueprint is not None
        for op, slot, blueprint in zip(
            action.op.words(), action.slot.words(), action.blueprint.words(), strict=True
        ):
            assert (slot is None) == (op == "wait")
            assert (blueprint is not None) == (op == "germinate")
            seen.add(op)

    assert {"wait", "germinate"} <= seen


def test_episodes_add_up(flown: Flown) -> None:
    """Each env's returns are the sums of its rewards; the update's return is their mean."""
    ended = [one for one in flown.of(EpisodeEnded) if isinstance(one, EpisodeEnded)]
    for number, (episode, rolled) in enumerate(zip(ended, flown.kept.rolled, strict=True)):
        sums = rolled.rewards.double().sum(dim=0)
        assert torch.tensor(episode.episode_return.array().tolist()).tolist() == pytest.approx(sums.tolist())
        assert flown.kept.updates[number]["return"] == pytest.approx(float(sums.mean()))
        assert episode.length is not None
        assert episode.length.array().tolist() == [STEPS] * NUM_ENVS

    assert len(ended) == UPDATES


def test_facts_and_phases_are_reported(flown: Flown) -> None:
    """Moves, gates, early stops with their update, seven phases an update and one before all, one end."""
    assert flown.of(SeedStageChanged)
    assert flown.of(GateEvaluated)
    assert [stop.update for stop in flown.of(EarlyStopped) if isinstance(stop, EarlyStopped)] == [1, 2]
    phases = [phase.phase for phase in flown.of(PhaseEnded) if isinstance(phase, PhaseEnded)]
    assert phases.count("warm-up") == 1
    assert [phase for phase in phases if phase != "warm-up"] == [
        "collect", "inference", "env_wait", "prepare", "estimate", "update", "log",
    ] * UPDATES  # fmt: skip
    assert [end.outcome for end in flown.of(RunFinished) if isinstance(end, RunFinished)] == ["completed"]


def test_a_fact_goes_out_as_it_is(flown: Flown) -> None:
    """A checkpoint, with its own time."""
    assert flown.of(CheckpointSaved) == [SAVED]


def test_a_wrong_endpoint_is_refused_at_the_start() -> None:
    """Before any process is started."""
    world = make("morphogenesis", WorldConfig(num_envs=1), {"slots": 1})

    with pytest.raises(ValueError, match="endpoint 'nowhere' is no URL"):
        start_tower(TowerConfig(endpoint="nowhere"), world.spec, 1, {})
