"""Training on a real GPU: nothing waits for it between two updates, and it goes on where it was."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from overwatch.catalog.judging import HALF_MISMATCH
from overwatch_rl.algorithms.common import Batch, Plan
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.learner.batches import on_device
from overwatch_rl.sync_points import counts
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.training.warmup import choose
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import WorldConfig
from tests.overwatch_rl.algorithms.small import CODES, MOVES, copied, ppo, rollout, same, world_spec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
ENVS = 64
CONFIGS = {
    "conv": PPOConfig(network="conv", popart=True, value_clip=0.2, target_kl=1e-9, anneal_updates=9),
    "mlp": PPOConfig(target_kl=0.01),
}


@pytest.fixture
def strict() -> Iterator[None]:
    """Torch raises when an operation waits for the device, but in the named points."""
    before = torch.cuda.get_sync_debug_mode()
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def trainer(config: PPOConfig, updates: int, seed: int = 0) -> Trainer[Batch]:
    """PPO on goodhart, on the GPU."""
    world = make("goodhart:small", WorldConfig(num_envs=ENVS, device="cuda"))
    algorithm = PPO(world.spec, config, seed=seed, device="cuda")
    return Trainer(
        world, algorithm, TrainerConfig(updates=updates, steps=16, seed=seed), Silent(), lambda: None
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_half_precision_agrees_with_itself_whatever_the_size_of_a_batch(*, channels_last: bool) -> None:
    """As collecting and learning do, with a policy that is sure of itself."""
    spec = world_spec(MOVES, CODES)
    made = ppo(PPOConfig(network="conv", logit_scale=1.0), spec=spec, device="cuda")
    made.apply_plan(Plan(precision="bf16", channels_last=channels_last))
    features = torch.randint(3, (4096, 3, 3), device="cuda").to(torch.int8)
    with torch.no_grad():
        whole = made.policy(features)[0]
        parts = torch.cat([made.policy(part)[0] for part in features.split(192)])
    assert float(whole.abs().max()) > 2
    moved = (whole.log_softmax(dim=1) - parts.log_softmax(dim=1)).abs().max()
    assert float(moved) < HALF_MISMATCH


@pytest.mark.parametrize("name", CONFIGS)
def test_training_never_waits_for_the_device(strict: None, name: str) -> None:
    """From the second update on, with an early stop that is decided on the device."""
    made = trainer(CONFIGS[name], 6)
    made.after_update = lambda: torch.cuda.set_sync_debug_mode("error")
    before = counts["ppo.early_stop"]
    assert made.run() == "completed"
    assert counts["ppo.early_stop"] == before


def test_a_training_that_goes_on_does_what_it_would_have_done() -> None:
    """World, moments and generators of the GPU are kept: the next update is equal to rounding."""
    one, other = trainer(CONFIGS["mlp"], 2), trainer(CONFIGS["mlp"], 2, seed=1)
    one.run()
    at = one.position()
    kept = replace(at, own=copied(at.own), algorithm=copied(at.algorithm), world=copied(at.world))
    other.go_on(kept)
    assert same(copied(other.position().world), kept.world)
    for made in (one, other):
        made._config = TrainerConfig(updates=3, steps=16)
        made.run()
    found, expected = other.position(), one.position()
    assert same(copied(found.world), copied(expected.world))
    for key, value in expected.algorithm.items():
        assert torch.allclose(found.algorithm[key].double(), value.double(), atol=1e-4), key


def test_a_plan_is_chosen_and_nothing_of_the_run_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among those with autocast, channels last, chunks and a compiled network."""
    # Otherwise its compiler leaves a process a core, each with open files.
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    made = ppo(PPOConfig(network="conv"), spec=world_spec(MOVES, CODES), device="cuda")
    rows = _stale(made)
    before = copied(made.state_dict())
    tuned = choose(made, rows, 60.0, time.perf_counter, minibatches=4)
    assert same(copied(made.state_dict()), before)
    made.apply_plan(tuned.plan)
    stats = made.update(rows)
    assert all(torch.isfinite(value) for name, value in stats.items() if name.endswith("loss"))


def _stale(made: PPO) -> Batch:
    """Rows of another policy, which are weighted."""
    spec = world_spec(MOVES, CODES)
    data = rollout(ppo(PPOConfig(network="conv"), spec=spec), spec, steps=8, envs=256)
    moved = on_device(data, torch.device("cuda"))
    age = torch.ones(data.rewards.shape, dtype=torch.int64, device="cuda")
    return made.prepare(replace(moved, age=age))
