"""A grpo training in one process: samplers take weights that were published, and their groups go as bytes."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from overwatch_rl.algorithms.grpo import GRPO, GRPOConfig
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.base import BaseConfig, judge, make_base
from overwatch_rl.grpo.sampler import Sampler
from overwatch_rl.grpo.task import END_CODE, VOCABULARY, TaskConfig
from overwatch_rl.grpo.trainer import Ends, GrpoTrainer, LoopConfig, Taken
from overwatch_rl.grpo.weights import newest, publish
from overwatch_rl.types import Reporter
from tests.overwatch_rl.kept import Kept

SMALL_TASK = TaskConfig(least=2, most=3)
SMALL_BASE = BaseConfig(steps=150, examples=64, width=32)
GROUPS = 16
GROUP_SIZE = 8


@dataclass
class Local:
    """A source whose batches are made here, `age` batches ahead; the samplers take turns."""

    folder: Path
    samplers: int = 3
    groups: int = GROUPS
    group_size: int = GROUP_SIZE
    age: int = 0
    seed: int = 0
    stale: Callable[[int], bool] = lambda _: False
    """From which number on the first sampler keeps its weights, and goes on to stamp the newest version."""
    acknowledged: list[int] = field(default_factory=list)
    """The version that was stated before each."""
    versions: list[Version] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._made: list[Sampler] = []
        self._ahead: deque[Taken] = deque()

    def take(self, stop: Callable[[], str | None]) -> Taken | None:
        """The oldest batch that was made."""
        if stop() is not None:
            return None
        while len(self._ahead) <= self.age:
            self._ahead.append(self._batch())
        return self._ahead.popleft()

    def acknowledge(self) -> None:
        """Keep the version by which it was."""
        self.acknowledged.append(self.versions[-1].number)

    def moved(self, version: Version) -> None:
        """Keep it, and let the samplers take it."""
        self.versions.append(version)
        found = newest(self.folder)
        assert found is not None
        assert found.version == version
        if not self._made:
            self._made = [
                Sampler(found, group_size=self.group_size, seed=100 * self.seed + number)
                for number in range(self.samplers)
            ]
        for number, sampler in enumerate(self._made):
            if number == 0 and self.stale(version.number):
                sampler.version = version
            else:
                sampler.take(found)

    def _batch(self) -> Taken:
        groups = [self._made[number % self.samplers].groups(1)[0] for number in range(self.groups)]
        numbers = [group["version"]["number"] for group in groups]
        return Taken(
            groups=[msgspec.json.decode(msgspec.json.encode(one)) for one in groups], numbers=numbers
        )


@dataclass
class Training:
    """A trainer and what surrounds it."""

    trainer: GrpoTrainer
    source: Local
    reporter: Kept


def training(
    source: Local,
    loop: LoopConfig,
    *,
    task: TaskConfig = SMALL_TASK,
    base: BaseConfig = SMALL_BASE,
    config: GRPOConfig | None = None,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Training:
    """Everything but the run."""
    config = config or GRPOConfig()
    model = make_base(base, task, seed)
    algorithm = GRPO(model, config, seed=seed, version=0)
    ends = Ends(
        publish=lambda version: publish(source.folder, version, model, task),
        judge=lambda number: judge(model, task, seed=number),
        end_code=END_CODE,
        vocabulary=VOCABULARY,
        weights=model.num_parameters(),
    )
    kept = Kept()
    return Training(GrpoTrainer(algorithm, source, loop, reporter or kept, ends), source, kept)


def shuffled(config: GRPOConfig | None = None) -> GRPOConfig:
    """The control: the same with advantages that change places inside each group."""
    return replace(config or GRPOConfig(), shuffled=True)
