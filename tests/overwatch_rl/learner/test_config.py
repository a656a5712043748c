"""One object from a file, an orchestrator and flags; errors have the path of the value."""

import json
from pathlib import Path
from typing import Any

import pytest

from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.algorithms.table import ALGORITHMS, kept
from overwatch_rl.config import PRESETS
from overwatch_rl.learner.config import learner_config, of_file
from overwatch_rl.orchestrator.commands import TUNABLES
from overwatch_rl.replay.limiter import Limiter
from overwatch_rl.replay.settings import table_config, table_words


def test_what_is_left_out_is_the_worlds_preset() -> None:
    """As `train` would take it."""
    config = learner_config({"world": "goodhart:small"})
    preset = PRESETS["goodhart:small"]

    assert config.learned == preset.learned
    assert (config.batch.steps, config.batch.envs) == (preset.steps, preset.envs)
    assert learner_config(config.model_dump()) == config


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_settings_of_its_own_name(name: str) -> None:
    """A row of the table that is forgotten here is none that can be served."""
    config = learner_config({"world": "gym:CartPole-v1", "algorithm": name, name: {"learning_rate": 0.5}})
    kind = ALGORITHMS[name]

    assert isinstance(config.learned, kind.config)
    assert config.learned.learning_rate == 0.5
    assert kept(config.kept()) == (name, config.learned)
    assert learner_config(config.model_dump()) == config
    assert kind.tunable <= set(TUNABLES)
    assert all(hasattr(config.learned, setting) for setting in kind.tunable)
    assert kind.optimiser_steps(config.learned) >= 1
    assert 0 < config.learned.gamma <= 1


def test_a_policy_with_memory_is_refused() -> None:
    """Chunks hold none; the error has the path, the value and what to do."""
    named = r"ppo.network is 'slots_recurrent', whose memory .* `overwatch-rl train`"
    with pytest.raises(ValueError, match=named):
        learner_config({"world": "morphogenesis", "ppo": {"network": "slots_recurrent"}})
    assert learner_config({"world": "morphogenesis", "ppo": {"network": "slots"}}).learned


def test_a_table_that_is_sampled_paces_as_one_process_would() -> None:
    """An update has its gradient steps once its batch is there, and actors are one batch ahead at most."""
    config = learner_config({"world": "gym:CartPole-v1", "algorithm": "dqn", "seed": 4})
    table = config.table("experience")
    assert table is not None
    assert table_config(table_words(table)) == table
    assert learner_config({}).table("experience") is None
    assert config.lead == 1_024 + 256  # batches of 256 until 1,000 are there
    limiter, held = Limiter(table.rate), 0
    for batch in range(10):
        assert limiter.may_insert(held)
        held += 256
        limiter.insert(256)
        samples = 0
        while limiter.may_sample(held):
            limiter.sample(64)
            samples += 1
        assert samples == (0 if batch < 3 else 128)
    for is_open in (True, True, False):  # the batch of the next update, and one ahead
        assert limiter.may_insert(held) == is_open
        held += 256
        limiter.insert(256)


def test_later_sources_come_first() -> None:
    """Flags over the orchestrator's payload over the file, name by name."""
    config = learner_config(
        {"world": "gym:CartPole-v1", "seed": 1, "ppo": {"epochs": 2, "gamma": 0.9}},
        {"ppo": {"epochs": 3}, "batch": {"steps": 16}},
        {"seed": 7},
    )

    assert isinstance(config.learned, PPOConfig)
    assert (config.seed, config.learned.epochs, config.learned.gamma) == (7, 3, 0.9)
    assert (config.batch.steps, config.batch.envs) == (16, 8)
    assert config.learned.gae_lambda == PRESETS["gym"].learned.gae_lambda


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({"ppo": {"learning_rate": 2.0}}, r"ppo\.learning_rate is 2; use a value in \(0, 1\]"),
        ({"ppo": {"entropy_coef": 0.2}}, r"ppo\.entropy_coef is 0\.2; use a value in \[0, 0\.1\]"),
        ({"ppo": {"clip": 0.01}}, r"ppo\.clip is 0\.01; use a value in \[0\.05, 0\.3\]"),
        ({"ppo": {"epochs": "many"}}, r"ppo\.epochs is 'many': .*valid integer"),
        ({"ppo": {"lr": 0.1}}, r"ppo\.lr is none of its settings, which are .*learning_rate"),
        ({"ppo": {"gae": 1}}, r"ppo\.gae is none of its settings.*gae_lambda, gamma"),
        ({"ppo": {"gamma": 1.5}}, r"ppo.*gamma is 1\.5; use a number from 0 to 1"),
        ({"ppo": {"minibatches": 99}, "batch": {"steps": 4, "envs": 2}}, r"ppo\.minibatches is 99; .*8 rows"),
        ({"batch": {"steps": 0}}, r"batch\.steps is 0: .*greater than or equal to 1"),
        ({"batch": {"prefech": 4}}, r"batch\.prefech is 4: Extra inputs are not permitted"),
        ({"batch": {"patience_s": 0}}, r"batch\.patience_s is 0"),
        ({"checkpoint": {"keep": 0}}, r"checkpoint\.keep is 0"),
        ({"heartbeat_s": 1}, r"heartbeat_s is 1"),
        ({"device": "tpu"}, r"device is 'tpu'"),
        ({"recovery": {"cut": 1.0}}, r"recovery: cut is 1\.0"),
        ({"algorithm": "sarsa"}, r"algorithm is 'sarsa'; use one of ppo, dqn"),
        ({"algorithm": ["dqn"]}, r"algorithm is .*; use one of ppo, dqn"),
        ({"dqn": {"batch": 3}}, r"dqn\.batch is a setting of dqn, and algorithm is ppo"),
        ({"algorithm": "dqn", "ppo": {"clip": 0.1}}, r"ppo\.clip is a setting of ppo, and algorithm is dqn"),
        ({"algorithm": "dqn", "dqn": {"clip": 1}}, r"dqn\.clip is none of its settings, which are alpha"),
        ({"algorithm": "dqn", "dqn": {"batch": "x"}}, r"dqn\.batch is 'x': .*valid integer"),
        (
            {"algorithm": "dqn", "dqn": {"learning_rate": 2}},
            r"dqn\.learning_rate is 2; use a value in \(0, 1\]",
        ),
        (
            {"algorithm": "dqn", "dqn": {"capacity": 1000}},
            r"dqn\.capacity is 1000; with batches of 256 .* 1280",
        ),
        ({"algorithm": "dqn", "batch": {"max_age": 3}}, r"batch\.max_age is 3; dqn samples from a table"),
        ({"algorithm": "dqn", "batch": {"prefetch": 1}}, r"batch\.prefetch is 1; dqn samples from a table"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(given: dict[str, Any], stated: str) -> None:
    """With the value and what it may be; nothing starts."""
    with pytest.raises(ValueError, match=stated):
        learner_config(given)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", "world: gym:CartPole-v1\nbatch:\n  steps: 32\n"),
        ("run.toml", 'world = "gym:CartPole-v1"\n[batch]\nsteps = 32\n'),
        ("run.json", json.dumps({"world": "gym:CartPole-v1", "batch": {"steps": 32}})),
    ],
)
def test_files_of_three_kinds_are_the_same(tmp_path: Path, name: str, text: str) -> None:
    """YAML, TOML, JSON."""
    (tmp_path / name).write_text(text)
    config = learner_config(of_file(tmp_path / name))

    assert (config.world, config.batch.steps) == ("gym:CartPole-v1", 32)


@pytest.mark.parametrize(
    ("name", "text"), [("a.ini", ""), ("a.json", "{"), ("a.yaml", "- 1"), ("a.toml", "x")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    """With why."""
    (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=name):
        of_file(tmp_path / name)


def test_the_hash_is_of_what_decides() -> None:
    """Device and threads are the machine's; a rate is not."""
    config = learner_config({})

    assert learner_config({"threads": 2}).hash == config.hash
    assert learner_config({"ppo": {"learning_rate": 0.5}}).hash != config.hash
