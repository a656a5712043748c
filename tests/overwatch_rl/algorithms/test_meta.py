"""Collect, prepare and update on tensors without values: a read from the device anywhere raises.

The optimiser is the foreach form there, and statistics are dropped where they would be delivered.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from overwatch_rl.algorithms import ppo as module
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.trainer import Trainer, TrainerConfig
from overwatch_rl.types import Box, ObservationSpec
from tests.overwatch_rl.algorithms.small import CODES, MOVES, SLOTS, SPEC, VECTOR, Blank

CONV = PPOConfig(network="conv", popart=True, value_clip=0.2, target_kl=1e-9, anneal_updates=3)


def train(config: PPOConfig, world: Blank) -> str:
    """Two updates."""
    algorithm = PPO(world.spec, config, seed=0, device="meta")
    trainer = Trainer(world, algorithm, TrainerConfig(updates=2, steps=8), Silent(), lambda: None)
    return trainer.run()


@pytest.mark.parametrize(
    ("config", "action", "seen"),
    [
        (CONV, MOVES, CODES),
        (PPOConfig(popart=True, normalise_observations=True), Box(low=(-1.0,), high=(1.0,)), VECTOR),
        (PPOConfig(), SPEC, ObservationSpec(shape=(3, 4, 4), dtype=torch.uint8)),
        (PPOConfig(network="slots", popart=True), SPEC, SLOTS),
        (PPOConfig(network="slots_recurrent", normalise_observations=True, target_kl=1e-9), SPEC, SLOTS),
    ],
    ids=["conv", "gaussian", "factored", "slots", "recurrent"],
)
def test_the_loop_reads_nothing_from_the_device(
    config: PPOConfig, action: object, seen: ObservationSpec
) -> None:
    """Everything that a policy may be made of."""
    world = Blank(4, "meta", action=action, seen=seen)  # type: ignore[arg-type]  # kinds of action
    assert train(config, world) == "completed"


READS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda tensor: tensor.sum().item(),
    "bool": lambda tensor: bool(tensor.any()),
    "tolist": lambda tensor: tensor.tolist(),
    "numpy": lambda tensor: tensor.numpy(),
    "boolean index": lambda tensor: tensor[tensor > 0],
    "nonzero": lambda tensor: tensor.nonzero(),
    "cpu": lambda tensor: tensor.cpu(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("place", ["collect", "prepare", "update"])
def test_a_planted_read_fails(monkeypatch: pytest.MonkeyPatch, place: str, read: str) -> None:
    """In each part of the loop, each way of reading."""
    world = Blank(4, "meta")
    owner, name = {
        "collect": (Blank, "step"),
        "prepare": (module, "advantages"),
        "update": (module, "loss"),
    }[place]
    honest = getattr(owner, name)

    def reading(*arguments: object) -> object:
        READS[read](next(one for one in _tensors(arguments)).detach())
        return honest(*arguments)

    monkeypatch.setattr(owner, name, reading)
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        train(CONV, world)


def _tensors(arguments: tuple[object, ...]) -> list[Tensor]:
    found = [one for one in arguments if isinstance(one, Tensor)]
    return found or [arguments[0].log_probs]  # type: ignore[attr-defined]  # what was judged
