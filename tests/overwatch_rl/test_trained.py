"""A policy that was kept acts as the one that was trained."""

from pathlib import Path

import pytest
import torch

from overwatch_rl.checkpoints import Manifest, save
from overwatch_rl.trained import load_policy, player
from overwatch_rl.training.trainer import TrainerConfig
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import play
from tests.overwatch_rl.kept import trainer


def test_a_kept_policy_plays_as_the_trained_one(tmp_path: Path) -> None:
    """Saved and loaded, it earns the same returns; in another world's shape it is refused."""
    made, algorithm, _ = trainer(TrainerConfig(updates=1))
    made.run()
    manifest = Manifest(world="morphogenesis", network="mlp", updates=1, settings={"slots": 1})
    save(tmp_path, made.acting(), manifest)
    loaded = load_policy(tmp_path)
    world = make("morphogenesis", WorldConfig(num_envs=2), {"slots": 1})

    kept, trained = (play(world, act, 1).returns for act in (loaded.player(world.spec), player(algorithm)))
    assert torch.equal(kept, trained)
    with pytest.raises(ValueError, match="trained in morphogenesis with slots=1"):
        loaded.player(make("morphogenesis", WorldConfig(num_envs=1), {"slots": 2}).spec)


def test_a_folder_without_policy_is_refused(tmp_path: Path) -> None:
    """The error names which folder to give."""
    with pytest.raises(ValueError, match="holds no policy; name the --out folder"):
        load_policy(tmp_path)
