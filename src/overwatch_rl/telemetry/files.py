"""The reporter that has a run's own numbers written into its folder, by a process of its own: `files_writer`.

Rules: the training thread copies columns into shared memory and does not wait; what finds no room waits here,
up to a bound, and is then dropped and counted. Before a checkpoint it is handed over, for some seconds at
most: no later life makes those rows again. Which rows end an episode is decided in the process. One
process writes a folder: that of a killed trainer has written all it was given before the next begins. Must
not know worlds or algorithms.
"""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import torch
from torch import Tensor

from overwatch_rl.handover.locks import held_lock
from overwatch_rl.handover.receiver import Head
from overwatch_rl.handover.sender import Sender
from overwatch_rl.telemetry.files_writer import Begin, Close, Note, RollOut, Update
from overwatch_rl.telemetry.reporter import Silent, plain
from overwatch_rl.types import Rolled

MOST_ROWS: Final = 4_194_304
"""Of a rollout, steps times envs; a larger one is dropped."""
MOST_WAITING: Final = 1_024
"""Updates that wait for room, and as many rollouts."""
MOST_BYTES: Final = 16 << 20
"""Of the rollouts that wait."""
LOCK: Final = ".writer.lock"
BUSY_S: Final = 60.0
"""How long a process of before may take to write what it was given."""
CLOSE_S: Final = 60.0
MOST_STARTS: Final = 5
"""Times that the process is started again while it finishes nothing."""
CHECKPOINT: Final = "checkpoint"
CHECKPOINT_S: Final = 10.0
"""How long a checkpoint waits at most until what waits for room is handed over."""
_SLOTS: Final = 4
_NOTES: Final = 16
"""Updates that the process has not come to yet: what waits longer is lost with the trainer."""

_log: Final = logging.getLogger(__name__)


class Files(Silent):
    """The folder of one run."""

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, object] | None = None,
        *,
        done: tuple[int, int] = (0, 0),
        tensorboard: Path | None = None,
    ) -> None:
        """Start the process; rows that lie there already stay, of the first `done` updates and steps.

        `about` comes into the summary; event files go into the folder `tensorboard`. Raises `ValueError` when
        nothing can be written there, or another process still writes there.
        """
        if tensorboard is not None:
            _probe(tensorboard, "--tensorboard")
        _probe(folder, "--out")
        self._folder = folder
        with self._locked() as lock:
            try:
                self._sender = Sender(
                    "overwatch_rl.telemetry.files_writer",
                    [str(folder)],
                    slots=_SLOTS,
                    notes=_NOTES,
                    kept=[lock],
                )
            except OSError as error:
                raise ValueError(
                    f"the process that writes {folder} cannot start: {error.strerror}"
                ) from error
        self._update = done[0]
        self._waiting: deque[Note] = deque()
        self._rollouts: deque[tuple[Note, dict[str, Tensor]]] = deque()
        self._dropped = {"rollouts": 0, "updates": 0}
        self._is_open = True
        self._starts = 0
        """How often it was started again since it last finished anything."""
        board = None if tensorboard is None else str(tensorboard)
        self._begin = Begin(about=dict(about or {}), done=done[0], steps=done[1], tensorboard=board)
        """What lies in the files for certain: what a process that is started again begins with."""
        self._offer(self._begin)

    def phase(self, name: str) -> contextlib.AbstractContextManager[object]:
        """Before a checkpoint: hand over what waits, which is written then even if the trainer is killed."""
        if name == CHECKPOINT and self._is_open:
            self._drain(CHECKPOINT_S)
        return contextlib.nullcontext()

    def rollout(self, rolled: Rolled) -> None:
        """Hand over what the ends of episodes are made of."""
        self._update += 1
        note = RollOut(update=self._update, first_step=rolled.first_step, dropped=dict(self._dropped))
        columns = {
            name: column for name, column in rolled.columns.items() if column.dim() == rolled.rewards.dim()
        }
        own = {
            "terminated": rolled.terminated,
            "truncated": rolled.truncated,
            "episode_return": rolled.episode_return,
            "episode_length": rolled.episode_length,
        }
        tensors = {**own, **{f"column.{k}": _plain(v) for k, v in columns.items()}}
        if rolled.rewards.numel() > MOST_ROWS or not self._take(note, tensors):
            self._dropped["rollouts"] += 1

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Hand over one row."""
        if len(self._waiting) == MOST_WAITING:
            self._dropped["updates"] += 1
            return
        self._waiting.append(Update(update=index, values=plain(values), dropped=dict(self._dropped)))
        self._flush()

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Have the rest and the summary written, once."""
        if not self._is_open:
            return
        self._is_open = False
        self._drain(CLOSE_S)
        self._dropped["rollouts"] += len(self._rollouts)
        self._rollouts.clear()
        self._waiting.append(Close(outcome=outcome, reason=reason, dropped=dict(self._dropped)))
        self._drain(CLOSE_S, is_whole=True)
        self._sender.close(CLOSE_S)
        if self._waiting or self._sender.is_gone:
            _log.warning("the process that writes the run's files is gone: files are not complete")

    def _take(self, note: Note, tensors: Mapping[str, Tensor]) -> bool:
        """Hand a rollout over, or keep a copy until that can be done; whether there was room for either."""
        self._flush()
        if not self._rollouts and self._offer(note, tensors):
            return True
        waiting = [*self._rollouts, (note, tensors)]
        size = sum(tensor.nbytes for _, kept in waiting for tensor in kept.values())
        if self._sender.is_gone or len(waiting) > MOST_WAITING or size > MOST_BYTES:
            return False
        self._rollouts.append((note, {name: tensor.detach().clone() for name, tensor in tensors.items()}))
        return True

    def _flush(self) -> bool:
        """Hand over what waits; whether nothing does any more."""
        while self._rollouts and self._offer(*self._rollouts[0]):
            self._rollouts.popleft()
        while self._waiting and self._offer(self._waiting[0]):
            self._waiting.popleft()
        return not (self._rollouts or self._waiting)

    def _drain(self, within_s: float, *, is_whole: bool = False) -> None:
        """Hand over all that waits, unless that takes longer; with `is_whole` until it is written."""
        until = time.monotonic() + within_s
        while not self._flush() or (is_whole and not self._sender.is_whole):
            left = until - time.monotonic()
            if left <= 0 or (self._sender.is_gone and self._starts >= MOST_STARTS):
                break
            self._look(left)

    def _look(self, timeout: float = 0.0) -> None:
        """Note what is written; start a process that was killed again, with what it did not finish."""
        for answer in self._sender.answers(timeout):
            self._starts = 0
            head = msgspec.json.decode(answer, type=Head)
            match msgspec.json.decode(head.note, type=Note):
                case RollOut() as note:
                    last = note.first_step + head.pieces["terminated"].shape[0] - 1
                    self._begin = msgspec.structs.replace(self._begin, steps=max(self._begin.steps, last))
                case Update(update=update):
                    self._begin = msgspec.structs.replace(self._begin, done=max(self._begin.done, update))
                case _:
                    pass
        if not self._sender.is_gone or self._starts >= MOST_STARTS:
            return
        self._starts += 1
        _log.warning("the process that writes %s was killed; it is started again", self._folder)
        try:
            with self._locked() as lock:
                self._sender.restart(self._begin, [lock])
        except (OSError, ValueError) as error:
            _log.warning("the process that writes %s does not start again: %s", self._folder, error)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The lock of the folder, for a process that holds it for as long as it writes."""
        lock = held_lock(self._folder / LOCK, BUSY_S, "writes a run's numbers")
        try:
            yield lock
        finally:
            os.close(lock)

    def _offer(self, note: Note, tensors: Mapping[str, Tensor] | None = None) -> bool:
        self._look()
        try:
            return self._sender.offer(note, tensors or {})
        except OSError:
            return False  # No memory for it: dropped and counted as the caller does.


def _probe(folder: Path, flag: str) -> None:
    """Make a folder and write into it; raises `ValueError` naming the flag that gave it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".probe").touch()
        (folder / ".probe").unlink()
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written: {error.strerror}; name another {flag} folder"
        ) from error


def _plain(column: Tensor) -> Tensor:
    """In a type that the process can read."""
    return column.float() if column.dtype == torch.bfloat16 else column
