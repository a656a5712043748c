"""One object from a file, an orchestrator and flags; errors have the path of the value."""

import json
from pathlib import Path
from typing import Any

import pytest

from overwatch_rl.config import PRESETS
from overwatch_rl.learner.config import learner_config, of_file


def test_what_is_left_out_is_the_worlds_preset() -> None:
    """As `train` would take it."""
    config = learner_config({"world": "goodhart:small"})
    preset = PRESETS["goodhart:small"]

    assert config.learned == preset.ppo
    assert (config.batch.steps, config.batch.envs) == (preset.steps, preset.envs)
    assert learner_config(config.model_dump()) == config


def test_later_sources_come_first() -> None:
    """Flags over the orchestrator's payload over the file, name by name."""
    config = learner_config(
        {"world": "gym:CartPole-v1", "seed": 1, "ppo": {"epochs": 2, "returns": {"gamma": 0.9}}},
        {"ppo": {"epochs": 3}, "batch": {"steps": 16}},
        {"seed": 7},
    )

    assert (config.seed, config.learned.epochs, config.learned.returns.gamma) == (7, 3, 0.9)
    assert (config.batch.steps, config.batch.envs) == (16, 8)
    assert config.learned.returns.lam == PRESETS["gym"].ppo.returns.lam


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ppo": {"learning_rate": 2.0}}, r"ppo\.learning_rate is 2; use a value in \(0, 1\]"),
        ({"ppo": {"entropy_coef": 0.2}}, r"ppo\.entropy_coef is 0\.2; use a value in \[0, 0\.1\]"),
        ({"ppo": {"clip": 0.01}}, r"ppo\.clip is 0\.01; use a value in \[0\.05, 0\.3\]"),
        ({"ppo": {"epochs": "many"}}, r"ppo\.epochs is 'many': .*valid integer"),
        ({"ppo": {"lr": 0.1}}, r"ppo\.lr is none of its settings, which are .*learning_rate"),
        ({"ppo": {"returns": {"lambda": 1}}}, r"ppo\.returns\.lambda is none of its settings.*gamma, lam"),
        ({"ppo": {"returns": {"gamma": 1.5}}}, r"ppo.*gamma is 1\.5; use a number from 0 to 1"),
        ({"ppo": {"minibatches": 99}, "batch": {"steps": 4, "envs": 2}}, r"ppo\.minibatches is 99; .*8 rows"),
        ({"batch": {"steps": 0}}, r"batch\.steps is 0: .*greater than or equal to 1"),
        ({"batch": {"prefech": 4}}, r"batch\.prefech is 4: Extra inputs are not permitted"),
        ({"checkpoint": {"keep": 0}}, r"checkpoint\.keep is 0"),
        ({"heartbeat_s": 1}, r"heartbeat_s is 1"),
        ({"device": "tpu"}, r"device is 'tpu'"),
        ({"recovery": {"cut": 1.0}}, r"recovery: cut is 1\.0"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(given: dict[str, Any], said: str) -> None:
    """With the value and what it may be; nothing starts."""
    with pytest.raises(ValueError, match=said):
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
