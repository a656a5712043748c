"""Where the requests of followed runs go: a recording, as a collector writes it.

Rules: a batch has the stamp at which it came; of what is imported that is just behind its own time. Where
nothing came for long, e.g. between two runs of different days, the recording has a gap, as of a collector
that was away: no tick of it is replayed. Must not know runs.
"""

import time
from pathlib import Path
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.fold import SLOW_NS, next_tick
from overwatch.journal import Batch, Signal
from overwatch.serve.recording import RecordingWriter
from overwatch.simulate.delivery import Reported

DELAY_NS: Final = 5_000_000
"""From an imported event to its stamp."""
GAP_NS: Final = 60 * SLOW_NS
"""What is longer without a batch is a gap; a run that is followed gives a sign of life each few seconds."""


class Recorder:
    """A recording in a folder."""

    def __init__(self, out: Path, begin: int | None = None) -> None:
        """`begin` is the time of the first event of an import; without it batches come now."""
        self._is_live = begin is None
        self._stamp = time.time_ns() if begin is None else begin
        self._writer = RecordingWriter(out / "otlp", (Signal.LOGS,))
        self._sequence = 0
        self._start(self._stamp)

    def put(self, reported: Reported) -> None:
        """Write one request. Raises `OSError`."""
        came = time.time_ns() if self._is_live else reported.at + DELAY_NS
        if came - self._stamp > GAP_NS:
            self._start(came - 1, after=next_tick(self._stamp) + SLOW_NS)
        self._stamp = max(self._stamp + 1, came)
        self._sequence += 1
        self._writer.write(
            Batch(sequence=self._sequence, stamp=self._stamp, signal=Signal.LOGS, body=reported.body)
        )

    def _start(self, stamp: int, **more: int) -> None:
        """Begin, or go on after a gap from what came up to `after`."""
        self._sequence += 1
        body = msgspec.json.encode({"version": __version__, "followed": True, **more}, order="deterministic")
        self._writer.start(Batch(sequence=self._sequence, stamp=stamp, signal=Signal.START, body=body))

    def close(self) -> None:
        """Note the end, and let go of the files. Raises `OSError`."""
        try:
            self._writer.end(next_tick(self._stamp) + SLOW_NS)
        finally:
            self._writer.close()
