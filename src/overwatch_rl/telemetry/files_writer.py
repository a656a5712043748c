"""The process that writes a run's own numbers: `python -m overwatch_rl.telemetry.files_writer FOLDER`.

`updates.csv` and `updates.jsonl` have a row an update, every value under its short name. What is undefined is
empty or absent; what was computed and is not finite is `NaN`, `Infinity` or `-Infinity`. `episodes.csv` has a
row an episode: env, update, step (of all envs, from 1), return, length, how it ended, and the world's columns
in its last step. `summary.json` has how the run ended, its configuration, and what was dropped. Event files
of TensorBoard, where they are asked for, have the same numbers.
Rules: a row is written whole or not at all. The process outlives a trainer that was killed: what was handed
over is written, and the outcome is `lost`. Must not import torch, nor a package that does; TensorBoard's is
imported only where its files are asked for.
"""

import csv
import io
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec
import numpy as np

from overwatch.output import write_output
from overwatch_rl.handover.receiver import Receiver, SharedBlock, run

LOST: Final = "lost"
"""Outcome of a run whose process went without a word."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first: what the run is, and how many updates and steps of it lie there already."""

    about: dict[str, object]
    done: int
    steps: int = 0
    tensorboard: str | None = None
    """Folder of event files."""
    began: float = msgspec.field(default_factory=time.time)
    """When the run began, seconds since the epoch."""


class RollOut(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Columns of a rollout, T N each."""

    update: int
    first_step: int
    dropped: dict[str, int]


class Update(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The numbers of one update; those that are not finite are words."""

    update: int
    values: dict[str, float | str]
    dropped: dict[str, int]


class Close(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last."""

    outcome: str
    reason: str | None
    dropped: dict[str, int]


Note = Begin | RollOut | Update | Close


class Lines:
    """A file that grows by whole lines, or by other whole pieces."""

    def __init__(self, path: Path, kept: str) -> None:
        """Begin with `kept`, replacing what was there as a whole."""
        write_output(path, kept.encode())
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, text: str | bytes) -> None:
        """Append lines; raises `OSError` and leaves the file as it was when there is no room."""
        data = text.encode() if isinstance(text, str) else text
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, size)
            raise


class Table:
    """A CSV file; a column that comes later is empty in the rows before."""

    def __init__(self, path: Path, names: Sequence[str], done: int, by: str = "update") -> None:
        """Keep rows that lie there up to number `done` in the column `by`."""
        self._path = path
        self._names = list(names)
        rows = []
        if done and path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                self._names = list(reader.fieldnames or self._names)
                rows = [row for row in reader if _is_kept(row, by, done)]
        self.kept = len(rows)
        self._lines = Lines(path, self._text(rows, header=True))

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Append rows."""
        new = [
            name for name in dict.fromkeys(name for row in rows for name in row) if name not in self._names
        ]
        if new:
            with self._path.open(encoding="utf-8", newline="") as file:
                before = list(csv.DictReader(file))
            self._names += new
            self._lines = Lines(self._path, self._text(before, header=True))
        self._lines.write(self._text(rows, header=False))

    def _text(self, rows: Iterable[dict[str, Any]], *, header: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self._names, lineterminator="\n", restval="")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


class Events:
    """An event file of TensorBoard, whose folder is a run of TensorBoard's: its steps are of one kind."""

    def __init__(self, folder: Path, done: int) -> None:
        """Begin a file, beside those that lie there; it replaces what they have of steps after `done`."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._event, self._summary = Event, Summary
        self._records = RecordWriter(Lines(folder / f"events.out.tfevents.{time.time_ns()}", ""))
        self._append(file_version="brain.Event:2")
        self._append(step=done + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        """Append values by tag, as floats of four bytes."""
        present = [self._summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()]
        self._append(step=step, summary=self._summary(value=present))

    def _append(self, **fields: object) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())


def _is_kept(row: dict[str, Any], by: str, done: int) -> bool:
    """Whether it is whole, and of what stays."""
    return None not in row.values() and None not in row and row[by].isdecimal() and int(row[by]) <= done


def episodes(block: SharedBlock, note: RollOut) -> list[dict[str, Any]]:
    """A row for each episode that ended in a rollout."""
    columns = {
        name: np.frombuffer(
            block.memory, np.dtype(piece.dtype), count=int(np.prod(piece.shape)), offset=piece.offset
        ).reshape(piece.shape)
        for name, piece in block.pieces.items()
    }
    steps, envs = np.nonzero(columns["terminated"] | columns["truncated"])
    ended: dict[str, list[Any]] = {
        "env": envs.tolist(),
        "update": [note.update] * len(steps),
        "step": (steps + note.first_step).tolist(),
        "return": [_cell(value) for value in columns["episode_return"][steps, envs].tolist()],
        "length": columns["episode_length"][steps, envs].tolist(),
        "ended": np.where(columns["terminated"][steps, envs], "terminated", "truncated").tolist(),
    }
    for name, column in columns.items():
        if name.startswith("column."):
            cells = [_cell(value) for value in column[steps, envs].tolist()]
            ended.setdefault(name.removeprefix("column."), cells)
    return [dict(zip(ended, row, strict=True)) for row in zip(*ended.values(), strict=True)]


def _cell(value: Any) -> Any:
    """Of a return or a world's column, in which NaN is what is undefined."""
    return "" if isinstance(value, float) and not np.isfinite(value) else value


class Book:
    """The files of one run."""

    def __init__(self, folder: Path, begin: Begin) -> None:
        self._folder = folder
        self._about = begin.about
        self._began = begin.began
        self._done = begin.done
        self._steps = begin.steps
        self._dropped: dict[str, int] = {}
        self._failed = 0
        self._updates = Table(folder / "updates.csv", ["update"], begin.done)
        # By their step: a rollout that was cut short may lie behind the checkpoint's updates, and before it.
        names = ["env", "update", "step", "return", "length"]
        self._ends = Table(folder / "episodes.csv", names, begin.steps, by="step")
        self._episodes = self._ends.kept
        objects = _objects(folder / "updates.jsonl", begin.done)
        self._last: dict[str, object] | None = msgspec.json.decode(objects[-1]) if objects else None
        self._objects = Lines(folder / "updates.jsonl", "".join(objects))
        self._curves: tuple[Events, Events] | None = None
        if begin.tensorboard is not None:
            board = Path(begin.tensorboard)
            self._curves = Events(board / "updates", begin.done), Events(board / "episodes", self._episodes)

    def take(self, block: SharedBlock, note: RollOut | Update) -> None:
        """Write what it holds; a disk without room costs these rows and is counted."""
        self._dropped = note.dropped
        try:
            match note:
                case RollOut():
                    self._roll(block, note)
                case Update():
                    self._row(note)
                case _ as never:
                    assert_never(never)
        except OSError:
            self._failed += 1

    def close(self, outcome: str, reason: str | None, dropped: dict[str, int] | None) -> None:
        """Write the summary."""
        summary = {
            **self._about,
            "outcome": outcome,
            "reason": reason,
            "updates": self._done,
            "steps": self._steps,
            "episodes": self._episodes,
            "began": self._began,
            "ended": time.time(),
            "dropped": {**(self._dropped if dropped is None else dropped), "rows_without_room": self._failed},
            "last": self._last,
        }
        write_output(self._folder / "summary.json", msgspec.json.format(msgspec.json.encode(summary)) + b"\n")

    def _roll(self, block: SharedBlock, note: RollOut) -> None:
        self._steps = note.first_step + block.pieces["terminated"].shape[0] - 1
        rows = episodes(block, note)
        first, self._episodes = self._episodes + 1, self._episodes + len(rows)
        if rows:
            self._ends.write(rows)
        if self._curves is not None:
            for number, row in enumerate(rows, start=first):
                values = {f"episode/{name}": row[name] for name in ("return", "length")}
                self._curves[1].write(number, values)

    def _row(self, note: Update) -> None:
        self._done = note.update
        self._last = {"update": note.update, **note.values}
        self._objects.write(msgspec.json.encode(self._last).decode() + "\n")
        self._updates.write([self._last])
        if self._curves is not None:
            values = {f"policy/{name}": value for name, value in note.values.items()}
            self._curves[0].write(note.update, values)


def _objects(path: Path, done: int) -> list[str]:
    """Lines of the first `done` updates that lie there."""
    if not done or not path.exists():
        return []
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            update = msgspec.json.decode(line)["update"]
        except (msgspec.DecodeError, KeyError):
            continue
        if update <= done:
            kept.append(line + "\n")
    return kept


def serve(receiver: Receiver, arguments: Sequence[str]) -> None:
    """Write until the run is closed, or its process is gone."""
    book: Book | None = None
    for block in receiver.blocks():
        note = msgspec.json.decode(block.note, type=Note)
        match note:
            case Begin():
                book = Book(Path(arguments[0]), note)
            case Close():
                if book is not None:
                    book.close(note.outcome, note.reason, note.dropped)
                    book = None
            case _:
                if book is not None:
                    book.take(block, note)
        receiver.answer(block, None)
    if book is not None:
        book.close(LOST, None, None)


if __name__ == "__main__":
    run(sys.argv[1:], serve)
