"""Each row of a trainer is emitted by a real program: not by the simulator, not by a call written for a test.

A program is a training of `overwatch_rl` at toy size, whose reporter is the tower's over a run that is read
here. A row passes when it came finite, or follows from rows and facts that came.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from overwatch.catalog import CUSTOM_PREFIX, ROWS, Metric, Scope, head_of
from overwatch.events import (
    ActionTaken,
    EarlyStopped,
    EnvCrashed,
    EpisodeEnded,
    Event,
    GateEvaluated,
    Measured,
    PhaseEnded,
    SeedStageChanged,
)
from overwatch.sdk.frames import Frame, Update
from overwatch_rl.algorithms.dqn import DQN, DQNConfig
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.config import PRESETS
from overwatch_rl.grpo.base import BaseConfig
from overwatch_rl.grpo.config import GrpoSettings
from overwatch_rl.grpo.process import spec_of
from overwatch_rl.grpo.trainer import LoopConfig
from overwatch_rl.telemetry.tower import Tower, recompiles, words_of
from overwatch_rl.training.replayed import Local as Memory
from overwatch_rl.training.replayed import Replayed
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.morphogenesis.actions import HEADS
from tests.overwatch.sdk.rollouts.local import Local as LocalRun
from tests.overwatch_rl.grpo.local import Local as Answered
from tests.overwatch_rl.grpo.local import training

SCOPES: Final = (Scope.POLICY, Scope.ENV, Scope.SLOT, Scope.RUN)
"""What a trainer emits."""


@dataclass(frozen=True)
class Program:
    """One training."""

    world: str
    settings: dict[str, object]
    steps: int
    ppo: dict[str, Any]
    is_compiled: bool = False
    """Whether its network is compiled, in the warm-up."""


PROGRAMS: Final = (
    Program(
        "morphogenesis",
        {"slots": 1},
        60,
        {"target_kl": 1e-7, "network": "slots_recurrent", "minibatches": 2},
    ),
    Program("goodhart:small", {"mode": "proxy"}, 64, {}),
    Program("gym:Pendulum-v1", {}, 16, {"normalise_observations": True}, is_compiled=True),
    Program("gym:CartPole-v1", {"workers": "subprocess"}, 48, {}),
)

WAITS: Final = {
    **dict.fromkeys(
        (
            "overwatch.policy.effective_sample_size",
            "overwatch.policy.importance_clipped",
            "overwatch.policy.mismatch_kl",
        ),
        "actors that collect beside the update: tests/live/test_cluster.py",
    ),
    "overwatch.policy.chosen_log_prob": "preferences: tests/calibration/test_libraries.py",
    "overwatch.policy.eval_return": "evaluations of a trainer: tests/overwatch/adapters/test_sb3.py",
    "overwatch.policy.scaffold_delay": "a seed that helped another one and was pruned: "
    "tests/overwatch_rl/worlds/morphogenesis/test_rewards.py",
    "overwatch.policy.warmup": "a network of convolutions: tests/overwatch_rl/training/test_warmup.py",
    "overwatch.run.gpu.idle": "a GPU",
    "overwatch.run.updates": "counted from the updates that came",
}
"""Rows that no program emits, each with what it waits for."""

FACTS: Final = {
    "event:episode_ended": EpisodeEnded,
    "event:phase_ended": PhaseEnded,
}
"""Facts from which rows follow."""
FAULTY: Final = ("event:env_crashed", "event:env_rolled_back", "event:non_finite_seen")
"""Facts that need a fault; tests/overwatch_rl/worlds/test_gym.py and algorithms/test_ppo.py make it,
and worlds/morphogenesis/test_world.py."""


@dataclass(frozen=True)
class Emitted:
    """What all programs emitted together."""

    rows: set[str]
    """Names that came with a finite value."""
    events: list[Event]
    heads: dict[str, set[str]]
    """By world, the names of what came of single heads."""


def _compile(algorithm: PPO, _: object) -> dict[str, float]:
    algorithm.policy.compiled = (torch.compile(algorithm.network, backend="eager", dynamic=False),)
    return {}


def _language_model(folder: Path) -> tuple[list[Frame], list[Event]]:
    """Two updates of a small language model, by answers from samplers that take its weights."""
    spec = spec_of(GrpoSettings())
    local = LocalRun(words_of(spec), 3)
    base = BaseConfig(steps=40, examples=32, width=16, layers=1)
    source = Answered(folder, groups=8, seed=1)  # Some answers of a group score, some do not.
    tower = Tower(local.run, spec, "cpu")
    training(source, LoopConfig(updates=2, peak_flops=1e12), base=base, reporter=tower).trainer.run()
    found = local.both()
    local.run.close(0.0)
    return found


def _sampling() -> tuple[list[Frame], list[Event]]:
    """Three updates of DQN in CartPole; it learns from the second on."""
    world = make("gym:CartPole-v1", WorldConfig(num_envs=2))
    config = DQNConfig(hidden=8, batch=8, gradient_steps=4, capacity=400, first_at=60)
    local = LocalRun(words_of(world.spec), 2)
    memory = Memory(world.spec, config, seed=0)
    algorithm = Replayed(world.spec, DQN(world.spec, config, seed=0), memory)
    tower = Tower(local.run, world.spec, "cpu")
    Trainer(world, algorithm, TrainerConfig(updates=3, steps=20), tower, lambda: None).run()
    found = local.both()
    local.run.close(0.0)
    return found


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Emitted:
    """Two updates of each program."""
    frames, events = _language_model(tmp_path_factory.mktemp("weights"))
    rows = _finite(frames, events) | _finite(*_sampling())
    heads: dict[str, set[str]] = {}
    for program in PROGRAMS:
        preset = PRESETS.get(program.world) or PRESETS[program.world.partition(":")[0]]
        world = make(program.world, WorldConfig(num_envs=2), program.settings)
        local = LocalRun(words_of(world.spec), 2)
        algorithm = PPO(world.spec, replace(preset.learned, **program.ppo), seed=0)
        tower = Tower(local.run, world.spec, "cpu")
        config = TrainerConfig(updates=2, steps=program.steps)
        trainer = Trainer(world, algorithm, config, tower, lambda: None)
        trainer.host_numbers = recompiles(tower.fact)
        if program.is_compiled:
            trainer.warm_up = partial(_compile, algorithm)
        trainer.run()
        frames, found = local.both()
        local.run.close(0.0)
        getattr(world, "close", lambda: None)()
        rows |= _finite(frames, found)
        names = {name for frame in frames if isinstance(frame, Update) for name in frame.values}
        heads.setdefault(program.world, set()).update(name for name in names & rows if head_of(name))
        events += found
    return Emitted(rows, events, heads)


def _finite(frames: list[Frame], events: list[Event]) -> set[str]:
    """Names of rows that came, each with a finite value: what is undefined does not come."""
    rows: set[str] = set()
    for frame in frames:
        if isinstance(frame, Update):
            assert all(map(math.isfinite, frame.values.values())), frame.values
            rows |= set(frame.values)
    for event in events:
        if isinstance(event, Measured):
            rows |= set(event.values)
    return rows


def _follows(row: Metric, emitted: Emitted) -> bool:
    """Whether all that a row is derived from came."""

    def came(name: str) -> bool:
        if name in FAULTY:
            return True
        if name in FACTS:
            return any(isinstance(event, FACTS[name]) for event in emitted.events)
        return name in emitted.rows

    return bool(row.depends_on) and all(came(name) for name in row.depends_on)


def test_every_row_of_a_trainer_is_emitted_or_states_what_it_waits_for(emitted: Emitted) -> None:
    """A row that nothing real emits is one that only the simulator drives."""
    rows = [row for row in ROWS if row.scope in SCOPES]
    absent = [row.name for row in rows if row.name not in emitted.rows and not _follows(row, emitted)]

    assert sorted(absent) == sorted(WAITS)


def test_an_algorithm_without_ratios_has_no_numbers_of_them() -> None:
    """DQN has no KL, clip or entropy: they are absent, neither 0 nor NaN; its own rows are there."""
    frames, _ = _sampling()
    names = [set(frame.values) for frame in frames if isinstance(frame, Update)]
    own = {f"overwatch.policy.{name}" for name in ("epsilon", "memory_fill", "memory_age", "value_loss")}
    others = ("kl_divergence", "clip_fraction", "entropy", "policy_loss", "clip_range", "ratio_max")

    assert len(names) == 3
    assert own & names[0] == {"overwatch.policy.epsilon"}
    assert own <= names[1] & names[2]
    assert not set.union(*names) & {f"overwatch.policy.{name}" for name in others}


def test_each_head_has_rows_of_its_own_where_there_are_several(emitted: Emitted) -> None:
    """Morphogenesis has eight heads, one slot leaves no choice; a policy with one head has none of them."""
    rows = [f"{CUSTOM_PREFIX}{row.short}" for row in ROWS if row.parts]
    names = {f"{row}/{head}" for row in rows for head in HEADS}
    names.remove(f"{CUSTOM_PREFIX}entropy/slot")

    assert len(rows) == 5
    assert emitted.heads == {
        program.world: names if program.world == "morphogenesis" else set() for program in PROGRAMS
    }


def test_every_fact_of_a_trainer_is_emitted(emitted: Emitted) -> None:
    """Those that need no fault."""
    kinds = {type(event) for event in emitted.events}

    assert {ActionTaken, EarlyStopped, EpisodeEnded, GateEvaluated, PhaseEnded, SeedStageChanged} <= kinds
    assert EnvCrashed not in kinds
