"""Keeps a training: has a checkpoint written every so many updates, and one at the end.

Owns which tensors go into which file. A save that failed is a line of the run's log; only that of the last
one ends the run with an error. Must not know worlds, algorithms or how files are written.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from torch import Tensor

from overwatch.events import CheckpointSaved, LogLine, Severity
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import ALGORITHM, OPTIMIZER, POLICY, TRAINER, WORLD, State
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import Reporter

MOST_WORLD_BYTES: Final = 256 << 20
"""A world with more state is left out of checkpoints."""
FILES: Final = {"policy": POLICY, "optimizer": OPTIMIZER}
"""By the part of a tensor's name before the first dot; the others go into `ALGORITHM`."""


class CheckpointError(RuntimeError):
    """The last checkpoint of a run could not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a checkpoint holds of the run besides its position."""

    run_id: str
    config: Mapping[str, object]
    config_hash: str


class Keepable(Protocol):
    """A trainer, as far as its checkpoints go."""

    algorithm: Any
    updates_done: int
    after_update: Callable[[], None]

    def position(self) -> Position:
        """All that goes into one."""
        ...


def position_of(checkpoint: Checkpoint) -> Position:
    """Where a training was when a checkpoint was taken."""
    algorithm: dict[str, Tensor] = {}
    for name in (*FILES.values(), ALGORITHM):
        algorithm |= checkpoint.tensors(name)
    return Position(
        updates=checkpoint.state.updates,
        steps=checkpoint.state.steps,
        score=checkpoint.state.score,
        own=checkpoint.tensors(TRAINER),
        algorithm=algorithm,
        world=checkpoint.tensors(WORLD),
    )


class Keeper:
    """Checkpoints of one training."""

    def __init__(
        self, trainer: Keepable, manager: Manager, run: Kept, reporter: Reporter, *,
        every: int, has_world: bool = True,
    ) -> None:  # fmt: skip
        if every < 1:
            raise ValueError(f"checkpoint-every is {every}; use 1 or more updates")
        self._trainer = trainer
        self._manager = manager
        self._run = run
        self._reporter = reporter
        self._every = every
        self._lineage = manager.next_lineage
        self._has_warned = not has_world
        self._newest: int | None = None
        """Updates of the newest checkpoint that is on the disk."""
        trainer.after_update = self._after_update

    def close(self, *, is_whole: bool) -> None:
        """Wait for what is under way; with `is_whole` save what is not kept, and raise when that failed.

        A rollout that was cut off is not kept where the update before it is: it has taught nothing yet.
        """
        with self._reporter.phase("checkpoint"):
            try:
                self._report(self._manager.settle())
                is_needed = is_whole and self._newest != self._trainer.updates_done
                state, tensors = self._made() if is_needed else (None, {})
            except BaseException:
                self._manager.close(None, {})
                raise
            written = self._manager.close(state, tensors)
            self._report(written)
        if self._manager.skipped:
            self._log(Severity.INFO, f"{self._manager.skipped} checkpoints were skipped: one was under way")
        if is_needed and (not written or written[-1].error is not None):
            why = written[-1].error if written else "nothing came back from its process"
            raise CheckpointError(f"the last checkpoint in {self._manager.folder} was not written: {why}")

    def _after_update(self) -> None:
        if self._trainer.updates_done % self._every:
            self._report(self._manager.finished())
            return
        with self._reporter.phase("checkpoint"):
            self._report(self._manager.save(*self._made()))

    def _made(self) -> tuple[State, dict[str, Tensor]]:
        position = self._trainer.position()
        state = State(
            run_id=self._run.run_id,
            lineage=self._lineage,
            updates=position.updates,
            steps=position.steps,
            score=position.score,
            plan=asdict(self._trainer.algorithm.plan),
            config=dict(self._run.config),
            config_hash=self._run.config_hash,
        )
        return state, self._files(position)

    def _files(self, position: Position) -> dict[str, Tensor]:
        """Each tensor as `file:name`."""
        tensors = {
            f"{FILES.get(name.partition('.')[0], ALGORITHM)}:{name}": value
            for name, value in position.algorithm.items()
        }
        tensors |= {f"{TRAINER}:{name}": value for name, value in position.own.items()}
        size = sum(value.numel() * value.element_size() for value in position.world.values())
        if size <= MOST_WORLD_BYTES:
            tensors |= {f"{WORLD}:{name}": value for name, value in position.world.items()}
        if (size > MOST_WORLD_BYTES or not position.world) and not self._has_warned:
            self._has_warned = True
            why = f"of {size >> 20} MiB is too large" if size else "cannot be kept"
            self._log(Severity.WARNING, f"the world's state {why}: a resumed run begins new episodes")
        return tensors

    def _report(self, done: list[Written]) -> None:
        for one in done:
            if one.error is not None:
                self._log(
                    Severity.CRITICAL, f"the checkpoint of update {one.updates} was not written: {one.error}"
                )
                continue
            self._newest = one.updates
            self._reporter.fact(
                CheckpointSaved(
                    at=time.time_ns(),
                    path=one.path,
                    update=one.updates,
                    size_bytes=one.size_bytes,
                    duration_s=one.duration_s,
                )
            )

    def _log(self, severity: Severity, message: str) -> None:
        line = LogLine(at=time.time_ns(), severity=severity, message=message, subsystem="checkpoints")
        self._reporter.fact(line)
