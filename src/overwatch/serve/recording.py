"""Writing a recording: every batch as one line of OTLP JSON, beside an index of their order.

Owns the writing side of `index.jsonl`: a header, start lines, one line a batch, an end line. Rules: a batch
is in its file before the index says so; one signal a file, as other tools expect. Used from one thread at a
time; every disk error is the caller's. Must not know what the batches mean.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from overwatch import __version__
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import INDEX_VERSION, Batch, Signal
from overwatch.otlp import jsonl
from overwatch.serve.files import LineFile

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
        """Write one batch, then its place. Raises `OSError`; a batch whose place is not written is lost."""
        file = self._files[batch.signal]
        line = jsonl.to_json(batch.signal, batch.body) + b"\n"
        offset = file.append(line)
        self._note(
            {
                "sequence": batch.sequence,
                "stamp": batch.stamp,
                "signal": batch.signal.value,
                "file": file.path.name,
                "offset": offset,
                "length": len(line) - 1,
            }
        )

    def end(self, tick: int) -> None:
        """Note the last tick that was taken, in Unix nanoseconds. Raises `OSError`."""
        self._note({"end": tick})

    def close(self) -> None:
        """Let go of the files."""
        for file in (*self._files.values(), self._index):
            file.close()

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
