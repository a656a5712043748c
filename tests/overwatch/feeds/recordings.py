"""Recordings for tests: small ones written batch by batch, with as many lives of a collector as wanted."""

from collections.abc import Sequence
from pathlib import Path

from overwatch.events import Event
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.serve.recording import RecordingWriter
from tests import fakes
from tests.fakes import SECOND, START_NS


class Written:
    """A recording that grows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sequence = 0
        self._seq = 1
        self._writer = RecordingWriter(folder, (Signal.LOGS,))

    def start(self, second: float = 0.0, body: bytes = b"{}") -> None:
        """A collector starts."""
        self._writer.start(self._batch(second, body, Signal.START))

    def emit(self, second: float, events: Sequence[Event]) -> None:
        """One batch received at this second."""
        body = request(fakes.records(events, first_seq=self._seq), {})
        self._seq += len(events)
        self._writer.write(self._batch(second, body, Signal.LOGS))

    def update(self, second: float, kl: float = 0.01) -> None:
        """One policy update and a step of two envs, received at this second."""
        at = START_NS + int(second * SECOND)
        index = int(second * 10) + 1
        step = fakes.envs(at, [0, 1], index, reward=[second, kl], step_time=[0.1, 0.1])
        self.emit(second, [fakes.policy(at, index, kl_divergence=kl, entropy=0.5), step])

    def raised(self, second: float) -> None:
        """A finding of the run was seen open at this second's tick."""
        tick = START_NS + int(second * SECOND)
        self._writer.raised(
            {"finding": "a", "run": fakes.ORIGIN.run_id, "tick": tick, "since": tick, "severity": "critical"}
        )

    def end(self, second: float) -> None:
        """The collector stops after this second's tick."""
        self._writer.end(START_NS + int(second * SECOND) // FAST_NS * FAST_NS)

    def close(self) -> Path:
        """Let go of the files; returns the folder."""
        self._writer.close()
        return self.folder

    def _batch(self, second: float, body: bytes, signal: Signal) -> Batch:
        self._sequence += 1
        stamp = START_NS + int(second * SECOND) + 1
        return Batch(sequence=self._sequence, stamp=stamp, signal=signal, body=body)


def two_lives(folder: Path) -> Path:
    """A run over two lives of a collector: 8 s, a gap of 20 s, 5 s."""
    written = Written(folder)
    written.start()
    written.emit(0.0, [fakes.started(START_NS)])
    for tenth in range(0, 80, 2):
        written.update(tenth / 10)
    written.end(8.0)
    written.start(28.3)
    for tenth in range(284, 330, 2):
        written.update(tenth / 10, kl=0.05)
    written.end(33.0)
    return written.close()


def second_of(tick: int) -> float:
    """Seconds since the start of these recordings."""
    return (tick - START_NS) / SLOW_NS


def resumed_life(folder: Path) -> Path:
    """As `two_lives`, killed at 6 s, and the second life goes on from a checkpoint of the first at 7 s."""
    written = Written(folder)
    written.start()
    written.emit(0.0, [fakes.started(START_NS)])
    for tenth in range(0, 60, 2):
        written.update(tenth / 10)
    written.start(28.3, b'{"after": %d}' % (START_NS + 7 * SECOND))
    for tenth in range(284, 330, 2):
        written.update(tenth / 10, kl=0.05)
    written.end(33.0)
    return written.close()
