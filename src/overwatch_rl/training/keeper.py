"""Keeps a training: has a checkpoint written when one is due, and one at the end.

Owns when one is due and which tensors go into which file. Rules: a save that failed stalls checkpoints and
training goes on; the state of then is saved again soon, which stands for the ones that failed. Only the
failure of the last one ends the run with an error, or that another training writes there. Must not know
worlds, algorithms or how files are written.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from torch import Tensor

from overwatch.events import CheckpointSaved, LogLine, Severity
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.manifest import (
    ALGORITHM,
    OPTIMIZER,
    POLICY,
    TRAINER,
    VALUE,
    WORLD,
    State,
)
from overwatch_rl.checkpoints.reading import Checkpoint
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.training.trainer import Position
from overwatch_rl.types import Reporter

MOST_WORLD_BYTES: Final = 256 << 20
"""A world with more state is left out of checkpoints."""
FILES: Final = {"policy": POLICY, "value": VALUE, "optimizer": OPTIMIZER}
"""By the part of a tensor's name before the first dot; the others go into `ALGORITHM`. `value` is of an
algorithm whose value function has tensors of its own; a trunk that both share is in `policy`."""
AGAIN_S: Final = 30.0
"""Seconds until the next save when one has failed."""
LAST: Final = "last_checkpoint"
"""The phase at the end: unlike `checkpoint` it waits for storage, and is measured by itself."""
WAITS: Final = "checkpoint_wait"
"""The phase of waiting for a save that is under way, for the same reason."""
EARLY_S: Final = 10.0
"""So long a training waits for experience until what is not kept is kept early."""


class CheckpointError(RuntimeError):
    """The last checkpoint of a run could not be written, or another training writes there now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When a checkpoint is due: whichever of these comes first after the one before."""

    updates: int | None = None
    env_steps: int | None = None
    """Steps of all environments together."""
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the value."""
        for name, value in (("updates", self.updates), ("env-steps", self.env_steps)):
            if value is not None and value < 1:
                raise ValueError(f"checkpoint-every is {value} {name}; use 1 or more")
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            raise ValueError(f"checkpoint-every is {self.minutes} minutes; use more than 0")
        if self.updates is None and self.env_steps is None and self.minutes is None:
            raise ValueError("checkpoint-every is not given; name updates, env steps or minutes")


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
        version=checkpoint.state.version,
        cursor=checkpoint.state.cursor,
    )


class Keeper:
    """Checkpoints of one training."""

    def __init__(
        self, trainer: Keepable, manager: Manager, run: Kept, reporter: Reporter, *,
        every: int | Cadence, has_world: bool = True,
    ) -> None:  # fmt: skip
        """`every` is in updates where it is a number."""
        if not isinstance(every, Cadence) and every < 1:
            raise ValueError(f"checkpoint-every is {every}; use 1 or more updates")
        self.is_stalled = False
        """Whether the newest save failed."""
        self.env_steps: Callable[[], int] = _uncounted
        """Steps of all environments so far, asked where the cadence is in them."""
        self.on_written: Callable[[Written], None] = lambda _: None
        """Called with each checkpoint that is there: what came before it may be acknowledged."""
        self.on_stalled: Callable[[str | None], None] = lambda _: None
        """Called with the reason when saves begin to fail, with `None` when one is written again."""
        self.again_s = AGAIN_S
        self._trainer = trainer
        self._manager = manager
        self._run = run
        self._reporter = reporter
        self._cadence = every if isinstance(every, Cadence) else Cadence(updates=every)
        self._lineage = manager.next_lineage
        self._has_warned = not has_world
        self._newest: int | None = None
        """Updates of the newest checkpoint that is written."""
        self._steps_then = 0
        self._offered = 0
        """Updates of the newest that was handed over."""
        self._offered_at = time.monotonic()
        trainer.after_update = self._after_update

    @property
    def lineage(self) -> int:
        """Of the versions of this training."""
        return self._lineage

    def look(self, waited_s: float = 0.0) -> None:
        """Take in what was written, and save once more where that failed a while ago.

        For a training that stands still; one that goes on does so after each update. One that has waited
        for `EARLY_S` is kept early: what it learned from fills the table until it is in a checkpoint.
        A save that is under way is not waited for.
        """
        self._report(self._manager.finished())
        if waited_s >= EARLY_S and not self.is_stalled and self._offered != self._trainer.updates_done:
            if not self._manager.is_busy:
                self._save()
        elif self._is_to_repeat():
            self._save()

    def settle(self) -> None:
        """Wait for a save that is under way."""
        if self._manager.is_busy:
            with self._reporter.phase(WAITS):
                self._report(self._manager.settle())
        else:
            self._report(self._manager.settle())

    def save_last(self) -> None:
        """Save what is not kept yet, and wait for it."""
        self.settle()
        if self._newest != self._trainer.updates_done:
            self._save()
            self.settle()

    def close(self, *, is_whole: bool) -> None:
        """Wait for what is under way; with `is_whole` save what is not kept, and raise when that failed.

        A rollout that was cut off is not kept where the update before it is: it has taught nothing yet.
        """
        with self._reporter.phase(LAST):
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
            raise CheckpointError(f"the last checkpoint in {self._manager.where} was not written: {why}")

    def _after_update(self) -> None:
        self._report(self._manager.finished())
        if self._is_due() or self._is_to_repeat():
            self._save()

    def _is_due(self) -> bool:
        every, updates = self._cadence, self._trainer.updates_done
        return (
            (every.updates is not None and updates % every.updates == 0)
            or (every.env_steps is not None and self.env_steps() - self._steps_then >= every.env_steps)
            or (every.minutes is not None and time.monotonic() - self._offered_at >= every.minutes * 60)
        )

    def _is_to_repeat(self) -> bool:
        return self.is_stalled and time.monotonic() - self._offered_at >= self.again_s

    def _save(self) -> None:
        self._offered_at = time.monotonic()
        if not self._manager.is_busy:
            self._offered = self._trainer.updates_done
        if self._cadence.env_steps is not None:
            self._steps_then = self.env_steps()
        with self._reporter.phase("checkpoint"):
            self._report(self._manager.save(*self._made()))

    def _made(self) -> tuple[State, dict[str, Tensor]]:
        position = self._trainer.position()
        state = State(
            run_id=self._run.run_id,
            lineage=self._lineage if position.version is None else position.version.lineage,
            updates=position.updates,
            number=None if position.version is None else position.version.number,
            steps=position.steps,
            score=position.score,
            cursor=position.cursor,
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
            if one.is_fenced:
                raise CheckpointError(one.error)
            if one.error is not None:
                self._log(
                    Severity.CRITICAL, f"the checkpoint of update {one.updates} was not written: {one.error}"
                )
                self._stall(one.error)
                continue
            self._newest = one.updates
            self._stall(None)
            self._reporter.fact(
                CheckpointSaved(
                    at=time.time_ns(),
                    path=one.path,
                    update=one.updates,
                    size_bytes=one.size_bytes,
                    duration_s=one.duration_s,
                )
            )
            self.on_written(one)

    def _stall(self, why: str | None) -> None:
        if self.is_stalled == (why is not None):
            return
        self.is_stalled = why is not None
        if why is None:
            self._log(Severity.INFO, "checkpoints are written again")
        else:
            message = f"checkpoints are stalled, training goes on; another try every {self.again_s:g} s"
            self._log(Severity.WARNING, message)
        self.on_stalled(why)

    def _log(self, severity: Severity, message: str) -> None:
        line = LogLine(at=time.time_ns(), severity=severity, message=message, subsystem="checkpoints")
        self._reporter.fact(line)


def _uncounted() -> int:
    raise ValueError("checkpoint-every is in env steps, and nothing counts them; set Keeper.env_steps")
