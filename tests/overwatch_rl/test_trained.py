"""A policy that was kept acts as the one that was trained."""

from pathlib import Path

import pytest
import torch
from safetensors import TensorSpec

from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import POLICY, State
from overwatch_rl.checkpoints.store import Retention, Saving, open_place, write_checkpoint
from overwatch_rl.trained import TrainedPolicy, load_policy, player
from overwatch_rl.types import Observation
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import play
from tests.overwatch_rl.algorithms.small import world_spec
from tests.overwatch_rl.algorithms.test_networks import slotted


def test_a_kept_policy_plays_as_the_trained_one(tmp_path: Path) -> None:
    """Kept and loaded, it earns the same returns; in another world's shape it is refused."""
    world = make("morphogenesis", WorldConfig(num_envs=2), {"slots": 1})
    trained = PPO(world.spec, PPOConfig(popart=True), seed=3)
    specs = {
        name: TensorSpec(
            dtype=str(value.dtype).removeprefix("torch."),
            shape=list(value.shape),
            data_ptr=value.data_ptr(),
            data_len=value.nbytes,
        )
        for name, value in trained.state_dict().items()
        if name.startswith("policy.")
    }
    config = {"world": "morphogenesis", "settings": {"slots": 1}, "ppo": {"popart": True}}
    state = State(run_id="r", lineage=1, updates=4, steps=9, plan={}, config=config, config_hash="c")
    write_checkpoint(open_place(tmp_path / "checkpoints"), state, {POLICY: specs}, Retention(), Saving())
    loaded = load_policy(tmp_path)

    kept, before = (play(world, act, 1).returns for act in (loaded.player(world.spec), player(trained)))
    assert torch.equal(kept, before)
    assert (loaded.world, loaded.updates, loaded.config) == ("morphogenesis", 4, PPOConfig(popart=True))
    with pytest.raises(ValueError, match="trained in morphogenesis with slots=1"):
        loaded.player(make("morphogenesis", WorldConfig(num_envs=1), {"slots": 2}).spec)


def test_a_folder_without_policy_is_refused(tmp_path: Path) -> None:
    """The error names which folder to give."""
    with pytest.raises(ValueError, match="holds no checkpoint; name the --out folder"):
        load_policy(tmp_path)


@pytest.mark.parametrize("network", ["slots", "slots_recurrent"])
def test_a_policy_of_slots_acts_with_another_number_of_them(network: str) -> None:
    """Learned with two, it chooses of five by the same weights."""
    few, more = (world_spec(action, seen) for seen, action in (slotted(2), slotted(5)))
    config = PPOConfig(network=network)
    weights = {f"policy.{name}": one for name, one in PPO(few, config, seed=1).policy.state_dict().items()}
    kept = TrainedPolicy(
        world="w", settings={}, run_id="r", version=Version(1, 1), updates=1, algorithm="ppo", config=config,
        weights=weights,
    )  # fmt: skip
    seen = Observation(features=torch.randn(64, 17, generator=torch.Generator().manual_seed(0)))
    drawn = kept.policy(more).act(seen, torch.Generator().manual_seed(1)).actions

    assert kept.player(more)(seen).shape == (64, 3)
    assert set(drawn[:, 1].tolist()) == set(range(5))
