"""The exporter `otlp_file`: every accepted batch as one line of OTLP JSON, beside an index of their order.

Rules: a thread and a cursor of its own, so that a slow disk holds up nobody; a batch is in its file before
the index says so; one signal a file, as other tools expect; a disk that fails loses batches and says how
many. Must not know what the batches mean.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from overwatch import __version__
from overwatch.collector.context import Context
from overwatch.collector.signals import WIRES, count_items
from overwatch.journal import Batch, Signal
from overwatch.otlp import jsonl
from overwatch.serve.files import LineFile

NAME: Final = "otlp_file"
INDEX_VERSION: Final = 1
FAST_MS: Final = 100
SLOW_MS: Final = 1000

_WAIT_S: Final = 0.25


class OtlpFileConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.otlp_file`."""

    path: Path
    """The folder of the files and their index."""


class OtlpFileExporter:
    """Writes `<signal>.jsonl` and `index.jsonl` in a folder."""

    def __init__(self, config: OtlpFileConfig, context: Context) -> None:
        self._context = context
        self._files = {signal: LineFile(config.path / f"{signal.value}.jsonl") for signal in context.recorded}
        self._index = LineFile(config.path / "index.jsonl")
        self._cursor = context.journal.cursor(NAME)
        self._stopping = threading.Event()
        self._end: int | None = None
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        for signal in self._files:
            for verb in ("sent", "send_failed"):
                items = WIRES[signal].items
                self._context.tally.add(f"otelcol_exporter_{verb}_{items}", 0, exporter=NAME)
        self._thread.start()

    def end_at(self, tick: int | None) -> None:
        """Say at which tick the recording ends, in Unix nanoseconds; written by `stop`."""
        self._end = tick

    def stop(self) -> None:
        """Write all that was accepted, then the end, and let go of the files."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for file in (*self._files.values(), self._index):
            file.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for batch in self._cursor.wait(_WAIT_S):
                self._export(batch)
        for batch in self._cursor.wait(0):
            self._export(batch)
        if self._end is not None:
            self._guarded(lambda: self._note({"end": self._end}))

    def _export(self, batch: Batch) -> None:
        if batch.signal is Signal.START:
            self._guarded(lambda: self._start_line(batch))
            return
        file = self._files.get(batch.signal)
        if file is None:
            return
        verb = "sent" if self._guarded(lambda: self._batch_line(batch, file)) else "send_failed"
        name = f"otelcol_exporter_{verb}_{WIRES[batch.signal].items}"
        self._context.tally.add(name, count_items(batch.signal, batch.body), exporter=NAME)

    def _start_line(self, batch: Batch) -> None:
        body = msgspec.Raw(batch.body)
        line = {"sequence": batch.sequence, "stamp": batch.stamp, "signal": "start", "body": body}
        self._note(line)

    def _batch_line(self, batch: Batch, file: LineFile) -> None:
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

    def _note(self, entry: dict[str, Any]) -> None:
        lines = msgspec.json.encode(entry) + b"\n"
        if self._index.open() == 0:
            header = {
                "overwatch_index": INDEX_VERSION,
                "version": __version__,
                "fast_ms": FAST_MS,
                "slow_ms": SLOW_MS,
            }
            lines = msgspec.json.encode(header) + b"\n" + lines
        self._index.append(lines)

    def _guarded(self, write: Callable[[], None]) -> bool:
        """The border to the disk: an error is counted by the caller and said once by health."""
        try:
            write()
        except OSError as error:
            place = error.filename or self._index.path
            self._context.health.failed(NAME, f"{place}: {error.strerror or error}")
            return False
        self._context.health.recovered(NAME)
        return True
