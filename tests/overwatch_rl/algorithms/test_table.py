"""The table of algorithms: every row acts, learns, is kept, and no algorithm is forgotten."""

import ast
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import overwatch_rl.algorithms
from overwatch_rl.algorithms import OWN_SETTINGS
from overwatch_rl.algorithms.table import ALGORITHMS, NAMES, kept, kind_of
from overwatch_rl.config import TrainFlags, train_settings
from overwatch_rl.resume import config_of
from overwatch_rl.types import Observation
from tests.overwatch_rl import test_config
from tests.overwatch_rl.algorithms.test_dqn import SPEC

OTHERS = {"GRPO"}
"""Classes of algorithms whose contract is another one."""


def test_no_algorithm_is_forgotten() -> None:
    """Every class that has both `update` and `acting_keys` is a row, or has another contract."""
    folder = Path(overwatch_rl.algorithms.__file__).parent
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not any("Protocol" in ast.unparse(b) for b in node.bases):
                names = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                found |= {node.name} if {"update", "acting_keys"} <= names else set()
    assert found == {kind.make.__name__ for kind in ALGORITHMS.values()} | OTHERS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_acts_and_is_kept(name: str) -> None:
    """From its defaults, by its name in a configuration, to the bit; and what acting reads is kept."""
    kind = kind_of(name)
    assert kept({"world": "toy", name: asdict(kind.config())}) == (name, kind.config())
    first, second = (kind.make(SPEC, kind.config(), seed=seed, device="cpu", ranks=None) for seed in (0, 1))
    seen = Observation(features=torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    decision = first.act(seen, torch.Generator().manual_seed(2))
    assert decision.actions.shape == decision.log_probs.shape == (5, 1)
    assert decision.values.shape == (5,)
    assert first.acting_keys() <= set(first.state_dict())
    assert {f"policy.{key}" for key in first.policy.state_dict()} <= first.acting_keys()
    second.load_state_dict(first.state_dict())
    for one in (first, second):
        one.apply_plan(first.plan)
    same = [one.act(seen, torch.Generator().manual_seed(4)) for one in (first, second)]
    assert torch.equal(same[0].actions, same[1].actions)
    assert torch.equal(same[0].values, same[1].values)


def test_every_row_has_an_option_of_its_own() -> None:
    """With which `train` sets what has no flag."""
    assert set(OWN_SETTINGS) == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_flags_of_a_row_are_settings_of_it(name: str) -> None:
    """Each names a place in its config, or a run that goes on would not notice that one differs."""
    config = kind_of(name).config()
    for flag in kind_of(name).flags:
        assert flag in TrainFlags.__annotations__
        assert hasattr(config, NAMES.get(flag, flag))


def test_a_third_algorithm_trains_by_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is assembled is what was named, with its own settings, and never PPO in its place."""
    row = replace(kind_of("dqn"), flags=("lr",))
    monkeypatch.setitem(ALGORITHMS, "third", row)
    flags = test_config.given(
        algorithm="third", world="gym:CartPole-v1", epochs=None, minibatches=None, target_kl=None,
        own={"dqn": ("capacity=7000",)},
    )  # fmt: skip

    settings = train_settings(flags)

    assert (settings.algorithm, type(settings.learned)) == ("third", row.config)
    assert (settings.learned.learning_rate, settings.described["capacity"]) == (1e-3, "7000")
    assert list(config_of(settings)) == [
        "world",
        "envs",
        "settings",
        "third",
        "steps",
        "seed",
        "updates",
        "system",
    ]


def test_a_name_that_is_none_is_named() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="algorithm is 'sarsa'; use one of ppo, dqn"):
        kind_of("sarsa")
    with pytest.raises(ValueError, match="names no algorithm"):
        kept({"world": "toy"})


def test_ppo_is_one_file_to_copy() -> None:
    """It stands on torch and two files beside it; nothing of the tower is loaded with it."""
    tree = ast.parse(Path(overwatch_rl.algorithms.__file__).with_name("ppo.py").read_text(encoding="utf-8"))
    sources = {str(one.module) for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    program = "import sys, overwatch_rl.algorithms.ppo; print(*(n for n in sys.modules if 'overwatch.' in n))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    beside = {one for one in sources if one.startswith("overwatch_rl.algorithms.")}
    assert beside == {"overwatch_rl.algorithms.common", "overwatch_rl.algorithms.policy"}
    assert loaded.stdout.split() == []
