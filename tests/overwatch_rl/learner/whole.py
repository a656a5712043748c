"""Small trainings whose experience goes by chunks, in this process."""

from collections.abc import Callable

import torch
from torch import Tensor

from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age
from overwatch_rl.learner.batches import Batches, Limits
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.replay.chunk import Encoding
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.collector import Collector, CollectorConfig
from overwatch_rl.training.experience import Chunker, Source, encoding_of
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import World, WorldConfig

STEPS, ENVS = 24, 4


def world(name: str, settings: dict[str, object] | None = None) -> World:
    """One with few environments."""
    return make(name, WorldConfig(num_envs=ENVS), settings)


class Whole:
    """An actor and a learner in one process, with chunks between them."""

    def __init__(self, made: World, config: PPOConfig, seed: int, *, steps: int = STEPS) -> None:
        self.algorithm = PPO(made.spec, config, seed=seed)
        self.collector = Collector(
            made, self.algorithm, CollectorConfig(steps=steps, seed=seed), Silent(), lambda: None
        )
        observed = made.reset(seed)
        self.encoding: Encoding = encoding_of(made.spec, has_mask=observed.mask is not None)
        self.chunker = Chunker(Source(run="r", actor=0), self.encoding, ENVS)
        self.ledger = Ledger()
        self.lost: list[tuple[str, int, str]] = []
        self.updates = 0
        self.batches = Batches(made.spec, Limits(steps=steps, lanes=ENVS), self.age, self._lose)

    def age(self, version: Version) -> Age:
        """Behind the updates done."""
        return Age(self.updates - version.number, is_abandoned=False)

    def train(self, updates: int, seen: Callable[[object], object] = lambda _: None) -> dict[str, Tensor]:
        """Collect, cut into chunks, put together again, update; all that the algorithm holds afterwards."""
        for number in range(updates):
            assert self.collector.collect() is None
            chunks = self.chunker.chunks(self.collector.rollout(), 1, self.updates)
            self.batches.add(self.encoding, chunks, number + 1, self.ledger)
            made = self.batches.take()
            assert made is not None
            seen(made.rollout)
            self.algorithm.update(self.algorithm.prepare(made.rollout))
            made.use()
            self.updates += 1
        return {name: value.clone() for name, value in self.algorithm.state_dict().items()}

    def _lose(self, loss: str, steps: int, why: str) -> None:
        self.lost.append((loss, steps, why))


def alone(
    made: World, config: PPOConfig, seed: int, updates: int, *, steps: int = STEPS
) -> dict[str, Tensor]:
    """What the trainer in one process holds after as many updates."""
    from overwatch_rl.training.trainer import Trainer, TrainerConfig

    algorithm = PPO(made.spec, config, seed=seed)
    limits = TrainerConfig(updates=updates, steps=steps, seed=seed)
    assert Trainer(made, algorithm, limits, Silent(), lambda: None).run() == "completed"
    return {name: value.clone() for name, value in algorithm.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two states are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
