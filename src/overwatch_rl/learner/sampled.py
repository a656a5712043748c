"""The loop of a learner that samples what its actors remember, rather than leasing it once.

Owns what differs: an update is a number of gradient steps, paced by the limiter of the table; where replay
does not answer in its middle, it stays open until it does, and commands are obeyed meanwhile. Rules: env
steps are those that the table took, over restarts of its server too; no step is consumed, so none has a
place in a checkpoint. Must not know how a table is reached.
"""

import time
from typing import Any, Final, Self, cast

import msgspec
import numpy as np
import numpy.typing as npt

from overwatch.events import PhaseEnded
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.batches import check_encoding
from overwatch_rl.learner.config import LearnerConfig
from overwatch_rl.learner.sampling import SampledIo
from overwatch_rl.learner.service import Dependencies, LearnerLoop, StopConditions
from overwatch_rl.replay.base import Sampled
from overwatch_rl.training.experience import encoding_of
from overwatch_rl.training.replayed import Remembering
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import WorldSpec

KIND: Final = "sampled"
"""Of the experience behind a checkpoint: it has no cursor."""


class StepCount(msgspec.Struct):
    """Env steps of a run, from what a table counts since its server began."""

    steps: int = 0
    seen: int = 0

    def saw(self, accepted: int) -> None:
        """The table counts so many; fewer than before are those of a server that began anew."""
        self.steps += accepted - self.seen if accepted >= self.seen else accepted
        self.seen = accepted

    @classmethod
    def of(cls, kept: Any) -> Self:
        """As a checkpoint has it."""
        return msgspec.convert(kept, cls)


class SampledLoop(LearnerLoop):
    """One algorithm that learns from a table that actors fill."""

    def __init__(
        self,
        algorithm: Remembering,
        spec: WorldSpec,
        config: LearnerConfig,
        around: Dependencies,
        ends: StopConditions,
    ) -> None:
        """Raises `ValueError` for an algorithm that samples nothing."""
        super().__init__(cast("Any", algorithm), spec, config, around, ends)
        table = config.table("")
        if table is None:
            raise ValueError(f"algorithm {config.algorithm} samples nothing")
        self.feed: SampledIo
        self._learning = algorithm
        self._learning.ages = self._ages_of
        self._first = table.rate.min_steps
        self._count = StepCount()
        self._took = 0.0

    @property
    def env_steps(self) -> int:
        """Steps that actors made."""
        return self._count.steps

    def cursor(self) -> dict[str, Any]:
        """What a checkpoint keeps: nothing of experience but how many env steps there were."""
        kept = super().cursor()
        return kept | {"experience": KIND, "servers": [], "env_steps": msgspec.to_builtins(self._count)}

    def go_on(self, position: Position, first: Version) -> None:
        """Become as it was at `position`, as the life that begins with `first`."""
        super().go_on(position, first)
        if kept := (position.cursor or {}).get("env_steps"):
            self._count = StepCount.of(kept)

    def _turn(self) -> bool:
        """Go on with an update where there is a sample for it."""
        dqn = self._learning.dqn
        is_first = not self._learning.steps_learned
        if is_first:
            # Of the update that this sample begins: it comes when one batch more is there.
            dqn.steps = max(self._first, self.env_steps + self._config.rows)
        with self._reporter.phase("queue_wait"):
            sampled = self._learning.sample(self.feed)
        self._look()
        if sampled is None:
            dqn.steps = self.env_steps if is_first else dqn.steps
            return False
        self._check()
        if is_first:
            self._count.saw(sampled.accepted)
            dqn.steps = self.env_steps
        self._go_on_with(sampled)
        return True

    def _go_on_with(self, first: Sampled) -> None:
        """Take gradient steps until the update is whole, or no sample comes for a while."""
        began, waited = time.perf_counter(), 0.0
        sampled: Sampled | None = first
        self.is_whole = False
        with self._reporter.phase("update"):
            while sampled is not None:
                newest = sampled
                self._learning.learn(sampled, self.feed)
                requested = time.perf_counter()
                if self._learning.is_whole:
                    # Before the weights go out, and with them the next steps are asked for.
                    self.feed.settle()
                    sampled = None
                else:
                    sampled = self._learning.sample(self.feed)
                waited += time.perf_counter() - requested
        self.is_whole = True
        self._took += time.perf_counter() - began
        # A part of the phase before it, as of collecting the envs are.
        self._reporter.fact(PhaseEnded(at=time.time_ns(), phase="queue_wait", duration_s=waited))
        if self._learning.is_whole:
            for age in self._ages_of(newest).tolist():
                self._meter.observe("data_age", age)
            took, self._took = self._took, 0.0
            self._finish(self._learning.finish(), took)

    def _count_abandoned(self, updates: int) -> None:
        """None: its steps are in the table still."""

    def _check(self) -> None:
        encoding = self.feed.encoding
        if not self._is_known and encoding is not None:
            check_encoding(encoding, encoding_of(self._spec, has_mask=False))
            self._is_known = True

    def _queue(self) -> dict[str, float]:
        """Nothing is fetched ahead."""
        return {}

    def _ages_of(self, sampled: Sampled) -> npt.NDArray[np.int64]:
        both = zip(sampled.lineages.tolist(), sampled.versions.tolist(), strict=True)
        return np.array([self._age(Version(lineage, number)).updates for lineage, number in both], np.int64)
