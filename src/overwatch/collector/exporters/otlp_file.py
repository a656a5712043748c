"""The exporter `otlp_file`: every accepted batch into a recording.

Rules: a thread and a cursor of its own, so that a slow disk holds up nobody; a disk that fails loses batches
and says how many. Must not know what the batches mean, nor how a recording is laid out.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from overwatch.collector.context import Context
from overwatch.collector.signals import WIRES
from overwatch.journal import Batch, Signal
from overwatch.otlp.validate import count_items
from overwatch.serve.recording import RecordingWriter

NAME: Final = "otlp_file"

_WAIT_S: Final = 0.25


class OtlpFileConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.otlp_file`."""

    path: Path
    """The folder of the files and their index."""


class OtlpFileExporter:
    """Writes `<signal>.jsonl` and `index.jsonl` in a folder."""

    def __init__(self, config: OtlpFileConfig, context: Context) -> None:
        self._context = context
        self._writer = RecordingWriter(config.path, context.recorded)
        self._cursor = context.journal.cursor(NAME)
        self._stopping = threading.Event()
        self._end: int | None = None
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        for signal in self._writer.signals:
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
        self._writer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for batch in self._cursor.wait(_WAIT_S):
                self._export(batch)
        for batch in self._cursor.wait(0):
            self._export(batch)
        end = self._end
        if end is not None:
            self._guarded(lambda: self._writer.end(end))

    def _export(self, batch: Batch) -> None:
        if batch.signal is Signal.START:
            self._guarded(lambda: self._writer.start(batch))
            return
        if batch.signal not in self._writer.signals:
            return
        verb = "sent" if self._guarded(lambda: self._writer.write(batch)) else "send_failed"
        name = f"otelcol_exporter_{verb}_{WIRES[batch.signal].items}"
        self._context.tally.add(name, count_items(batch.signal, batch.body), exporter=NAME)

    def _guarded(self, write: Callable[[], None]) -> bool:
        """The border to the disk: an error is counted by the caller and said once by health."""
        try:
            write()
        except OSError as error:
            place = error.filename or self._writer.index
            self._context.health.failed(NAME, f"{place}: {error.strerror or error}")
            return False
        self._context.health.recovered(NAME)
        return True
