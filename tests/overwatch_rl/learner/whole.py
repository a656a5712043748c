"""Small trainings whose experience goes by chunks, in this process."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age
from overwatch_rl.learner.batches import Batches, Limits
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.learner.io import Away
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.learner.service import Dependencies, LearnerLoop, StopConditions
from overwatch_rl.replay.base import ItemId, LeasedChunk, LeaseOf, Resumed
from overwatch_rl.replay.chunk import Chunk, Encoding
from overwatch_rl.replay.client import Leased
from overwatch_rl.telemetry.meter import Meter
from overwatch_rl.telemetry.reporter import Silent
from overwatch_rl.training.collector import Collector, CollectorConfig
from overwatch_rl.training.experience import Chunker, Source, encoding_of
from overwatch_rl.weights.checking import rounded
from overwatch_rl.worlds import make
from overwatch_rl.worlds.base import World, WorldConfig
from tests.overwatch_rl.kept import Kept

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
        self.encoding: Encoding = encoding_of(made.spec, has_mask=observed.mask is not None, has_summary=True)
        self.chunker = Chunker(Source(run="r", actor=0), self.encoding, ENVS, made.spec.summary)
        self.ledger = Ledger()
        self.lost: list[tuple[str, int, str]] = []
        self.updates = 0
        self.change: Callable[[list[Chunk]], list[Chunk]] = lambda chunks: chunks
        self.batches = Batches(made.spec, Limits(steps=steps, lanes=ENVS), self.age, self._lose)

    def age(self, version: Version) -> Age:
        """Behind the updates done."""
        return Age(self.updates - version.number, is_abandoned=False)

    def train(self, updates: int, seen: Callable[[object], object] = lambda _: None) -> dict[str, Tensor]:
        """Collect, cut into chunks, put together again, update; all that the algorithm holds afterwards."""
        for number in range(updates):
            assert self.collector.collect() is None
            chunks = self.chunker.chunks(self.collector.rollout(), 1, self.updates)
            self.batches.add(self.encoding, self.change(chunks), number + 1, self.ledger)
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


class Line:
    """Experience in memory: what was appended is leased in order, and again after `resume`."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding: Encoding | None = encoding
        self.resumed: list[Resumed] | None = [
            Resumed(next_number=1, redelivered=0, acknowledged=0, gap=0, is_unknown=False)
        ]
        self.away: Away | None = None
        self.is_held_back = False
        self.requested: Callable[[], list[Chunk]] = list
        """Makes the chunks of the next lease; none where there is none."""
        self.acknowledged: list[list[int]] = []
        self.number = 0

    def next(self, timeout: float) -> Leased | None:  # noqa: ARG002 there is nothing to wait for
        """A lease."""
        chunks = self.requested()
        if not chunks:
            return None
        self.number += 1
        items = tuple(
            LeasedChunk(id=ItemId(slot, 0), chunk=chunk, is_redelivered=False, at=0)
            for slot, chunk in enumerate(chunks)
        )
        return Leased(shard=0, lease=LeaseOf(learner="l", number=self.number, items=items, deadline=0))

    def depth(self) -> int:
        """Nothing waits."""
        return 0

    def hold(self, *, is_held: bool) -> None:
        """Nothing is fetched ahead."""

    def acknowledge(self, upto: Sequence[int]) -> None:
        """Keep it."""
        self.acknowledged.append(list(upto))


class Published:
    """Weights in memory."""

    def __init__(self) -> None:
        self.dtype = "float32"
        """As which matrices are published."""
        self.versions: list[Version] = []
        self.tensors: dict[str, Tensor] = {}

    def publish(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """Keep a copy."""
        assert not self.versions or version > self.versions[-1]
        self.versions.append(version)
        self.tensors = {name: value.clone() for name, value in rounded(tensors, self.dtype).items()}

    def report(self) -> None:
        """Nothing failed."""


class Service:
    """A learner's loop and an actor that takes turns with it, in one process."""

    def __init__(self, made: World, config: LearnerConfig, *, updates: int) -> None:
        seed, steps = config.seed, config.batch.steps
        self.kept = Kept()
        self.published = Published()
        self.published.dtype = config.weights.dtype
        self.acting = PPO(made.spec, config.learned, seed=seed + 1)  # other weights: all are published
        self.collector = Collector(
            made, self.acting, CollectorConfig(steps=steps, seed=seed), Silent(), lambda: None
        )
        has_mask = made.reset(seed).mask is not None
        self.encoding = encoding_of(made.spec, has_mask=has_mask, has_summary=True)
        source = Source(run="r", actor=0)
        self.chunker = Chunker(source, self.encoding, config.batch.envs, made.spec.summary)
        self.line = Line(self.encoding)
        self.line.requested = self.collected
        self.change: Callable[[list[Chunk]], list[Chunk]] = lambda chunks: chunks
        self.algorithm = PPO(made.spec, config.learned, seed=seed)
        around = Dependencies(weights=self.published, reporter=self.kept, meter=Meter(), stop=lambda: None)
        self.loop = LearnerLoop(self.algorithm, made.spec, config, around, StopConditions(updates=updates))
        self.loop.feed = self.line

    def collected(self) -> list[Chunk]:
        """A rollout of the newest weights."""
        tensors = {name.removeprefix("policy."): value for name, value in self.published.tensors.items()}
        self.acting.policy.load_state_dict(tensors)
        assert self.collector.collect() is None
        version = self.published.versions[-1]
        return self.change(self.chunker.chunks(self.collector.rollout(), version.lineage, version.number))

    def state(self) -> dict[str, Tensor]:
        """All that was learned."""
        return {name: value.clone() for name, value in self.algorithm.state_dict().items()}
