"""Writing a recording: every batch as one line of OTLP JSON, beside an index of their order.

Owns the writing side of `index.jsonl`: a header, start lines, one line a batch, an end line. Rules: a batch
is in its file before the index says so; one signal a file, as other tools expect; marks say how far all of
them had come, so that a later life goes on from there without a line doubled or missing. Used from one
thread at a time; every disk error is the caller's. Must not know what the batches mean.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from overwatch import __version__
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import INDEX_VERSION, Batch, Signal
from overwatch.otlp import jsonl
from overwatch.serve.files import LineFile, Mark

_NS_PER_MS: Final = 1_000_000


class RecordingWriter:
    """Writes `<signal>.jsonl` and `index.jsonl` in a folder, which it makes when needed."""

    def __init__(self, folder: Path, signals: Iterable[Signal]) -> None:
        self._files = {signal: LineFile(folder / f"{signal.value}.jsonl") for signal in signals}
        self._index = LineFile(folder / "index.jsonl")

    @property
    def index(self) -> Path:
        """Where the index lies."""
        return self._index.path

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What is written; batches of other signals must not be given."""
        return tuple(self._files)

    def start(self, batch: Batch) -> None:
        """Note that a collector started; the body is JSON. Raises `OSError`."""
        body = msgspec.Raw(batch.body)
        line = {"sequence": batch.sequence, "stamp": batch.stamp, "signal": "start", "body": body}
        self._note(line)

    def write(self, batch: Batch) -> None:
        """Write one batch, then its place. Raises `OSError`; then neither is there."""
        file = self._files[batch.signal]
        line = jsonl.to_json(batch.signal, batch.body) + b"\n"
        mark = file.mark()
        file.append(line)
        entry = {
            "sequence": batch.sequence,
            "stamp": batch.stamp,
            "signal": batch.signal.value,
            "file": file.path.name,
            "offset": mark.length,
            "length": len(line) - 1,
        }
        try:
            self._note(entry)
        except OSError:
            with suppress(OSError):
                file.cut(mark)
            raise

    def end(self, tick: int) -> None:
        """Note the last tick that was taken, in Unix nanoseconds. Raises `OSError`."""
        self._note({"end": tick})

    def marks(self) -> dict[str, Mark]:
        """How far every file has come; what is there survives a power loss. Raises `OSError`."""
        marks = {file.path.name: file.mark() for file in self._all}
        for file in self._all:
            file.sync()
        return marks

    def go_back(self, marks: Mapping[str, Mark], position: int) -> None:
        """Forget what was written since, from batch `position` on, as it will be written again.

        What somebody else has added to the files stays. Raises `OSError`.
        """
        mark = marks.get(self._index.path.name)
        if mark is None or _is_foreign(self._index.after(mark), position):
            return
        for file in self._all:
            if file.path.name in marks:
                file.cut(marks[file.path.name])

    def close(self) -> None:
        """Let go of the files."""
        for file in self._all:
            file.close()

    @property
    def _all(self) -> tuple[LineFile, ...]:
        return (*self._files.values(), self._index)

    def _note(self, entry: dict[str, Any]) -> None:
        lines = msgspec.json.encode(entry) + b"\n"
        if self._index.open() == 0:
            header = {
                "overwatch_index": INDEX_VERSION,
                "version": __version__,
                "fast_ms": FAST_NS // _NS_PER_MS,
                "slow_ms": SLOW_NS // _NS_PER_MS,
            }
            lines = msgspec.json.encode(header) + b"\n" + lines
        self._index.append(lines)


def _is_foreign(line: bytes, position: int) -> bool:
    """Whether a line of an index names a batch before `position`: one of another journal."""
    try:
        sequence = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("sequence")
        return sequence is not None and msgspec.json.decode(sequence, type=int) < position
    except msgspec.DecodeError:
        return False
