"""The loop of a trainer that learns from groups made elsewhere: wait, estimate, update, publish, report.

Rules: a batch is acknowledged when the update that learned from it is done, its weights are published and
their version is stated, so that a trainer that was killed before gets the batch again. Every number is made
here or in the algorithm and handed to one reporter. Must not know HTTP, the task's words or who started it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from overwatch.events import LogLine, Severity
from overwatch_rl.algorithms.grpo import GRPO, Answers
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.base import Judged
from overwatch_rl.grpo.decoding import decode_batch
from overwatch_rl.training.delivery import Delivered, Delivery
from overwatch_rl.training.events import events_of
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import Reporter, Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How long to train."""

    updates: int = 60
    """Updates to do, of the whole run."""
    judge_every: int = 10
    """Updates between two looks at prompts that are held out; the last one is looked at too."""
    peak_flops: float | None = None
    """Operations a second that the device is declared to do; `mfu` is reported where it is."""

    def __post_init__(self) -> None:
        for name in ("updates", "judge_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.peak_flops is not None and not 0 < self.peak_flops < math.inf:
            raise ValueError(f"peak_flops is {self.peak_flops}; use a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A batch, leased."""

    groups: Sequence[Mapping[str, Any]]
    """As their senders wrote them."""
    numbers: Sequence[int | None]
    """Of the weights that made each; `None` where its sender did not state it."""


class Source(Protocol):
    """Where batches come from, and where they are acknowledged."""

    def take(self, stop: Callable[[], str | None]) -> Taken | None:
        """The next batch; waits for it. `None` when it was asked to stop meanwhile."""
        ...

    def acknowledge(self) -> None:
        """The batch that was taken last was learned from."""
        ...

    def moved(self, version: Version) -> None:
        """The policy has this version from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What the loop does at the border of its process and its task."""

    publish: Callable[[Version], None]
    """Bring the weights to those who sample."""
    judge: Callable[[int], Judged]
    """Look at prompts that are held out; given the seed of the draws."""
    end_code: int
    """The last letter of an answer that was not cut."""
    vocabulary: int
    weights: int
    """Numbers that each letter is multiplied with."""


class GrpoTrainer:
    """One algorithm, one source, one reporter."""

    def __init__(
        self, algorithm: GRPO, source: Source, config: LoopConfig, reporter: Reporter, ends: Ends,
        *, lineage: int = 1,
    ) -> None:  # fmt: skip
        self.algorithm = algorithm
        self._source = source
        self._config = config
        self._reporter = reporter
        self._ends = ends
        self._lineage = lineage
        self._delivery = Delivery()
        self._score: float | None = None
        self.updates_done = 0
        self.answers_done = 0
        self.judged: dict[int, Judged] = {}
        """What held-out prompts earned, by updates done."""
        self.after_update: Callable[[], None] = lambda: None
        """Called between an update and the next batch."""

    def run(self, stop: Callable[[], str | None] = lambda: None) -> str:
        """Train until the updates are done or it is asked to stop; the outcome in one word."""
        self._publish()
        self._source.moved(self.version)
        self._look()
        outcome = "completed"
        while self.updates_done < self._config.updates:
            began = time.perf_counter()
            with self._reporter.phase("queue_wait"):
                taken = self._source.take(stop)
            if taken is None:
                outcome = stop() or outcome
                break
            with self._reporter.phase("prepare"):
                answers = self._decoded(taken)
            if answers is None:
                # Versions count batches: the server waits for one with each.
                self.algorithm.version += 1
                self._publish()
            else:
                self._learn(answers, began)
            self._source.moved(self.version)
            self._source.acknowledge()
            if answers is not None:
                self.after_update()
            if (stopped := stop()) is not None and self.updates_done < self._config.updates:
                outcome = stopped
                break
        for delivered in self._delivery.rest():
            self._deliver(delivered)
        if self.updates_done not in self.judged:
            self._look()
        return outcome

    @property
    def version(self) -> Version:
        """The weights that the policy has."""
        return Version(lineage=self._lineage, number=self.algorithm.version)

    def position(self) -> Position:
        """All that the next update depends on but the queue."""
        return Position(
            updates=self.updates_done,
            steps=self.answers_done,
            score=self._score,
            own={},
            algorithm=self.algorithm.state_dict(),
            world={},
        )

    def go_on(self, position: Position, newest: int) -> None:
        """Become as it was at `position`; weights get numbers above `newest`, which was given out before.

        Raises `ValueError` when it is of another model.
        """
        self.updates_done, self.answers_done = position.updates, position.steps
        self._score = position.score
        self.algorithm.load_state_dict(position.algorithm)
        self.algorithm.version = max(newest, self.algorithm.version) + 1

    def _decoded(self, taken: Taken) -> Answers | None:
        decoded = decode_batch(
            taken.groups, taken.numbers, vocabulary=self._ends.vocabulary, end=self._ends.end_code
        )
        for line in decoded.refused:
            self._log(Severity.WARNING, f"not learned from: {line}")
        return decoded.answers

    def _learn(self, answers: Answers, began: float) -> None:
        with self._reporter.phase("advantage"):
            batch = self.algorithm.prepare(answers)
        started = time.perf_counter()
        with self._reporter.phase("update"):
            stats = self.algorithm.update(batch)
        took = time.perf_counter() - started
        with self._reporter.phase("weights"):
            self._publish()
        self.updates_done += 1
        self.answers_done += len(answers.scores)
        ended = time.perf_counter()
        self._reporter.beat(self.updates_done, ended - began)
        self._report(stats, answers.tokens, {"update_time": ended - began}, took)
        if self.updates_done % self._config.judge_every == 0:
            self._look()

    def _report(self, stats: Stats, tokens: Tensor, host: dict[str, float], learning_s: float) -> None:
        if self._config.peak_flops is not None:
            done = self.algorithm.config.epochs * tokens[:, 1:].numel() * self._ends.weights
            # Two operations a weight and letter forwards, four backwards.
            host["mfu"] = 6 * done / (learning_s * self._config.peak_flops)
        self._delivery.send(self.updates_done, stats, host)
        for delivered in self._delivery.arrived():
            self._deliver(delivered)

    def _deliver(self, delivered: Delivered) -> None:
        values = dict(delivered.values)
        for event in events_of(self.algorithm.config, delivered.index, values, time.time_ns()):
            self._reporter.fact(event)
        self._score = values["return"]
        self._reporter.update(delivered.index, values)

    def _publish(self) -> None:
        self._ends.publish(self.version)

    def _look(self) -> None:
        with self._reporter.phase("evaluation"):
            found = self.judged[self.updates_done] = self._ends.judge(self.updates_done)
        self._log(
            Severity.INFO,
            f"held-out prompts earn {found.mean:.3f} ± {found.standard_error:.3f} "
            f"after {self.updates_done} updates",
        )

    def _log(self, severity: Severity, message: str) -> None:
        line = LogLine(at=time.time_ns(), severity=severity, message=message, subsystem="grpo")
        self._reporter.fact(line)
