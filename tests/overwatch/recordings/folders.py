"""Recordings for tests of compaction: batches with simulated stamps through the real writer and clean-up."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from overwatch.events import Event, Measured, Record
from overwatch.journal import Batch, Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.encode import request
from overwatch.otlp.jsonl import from_json
from overwatch.recordings.compaction import Rules
from overwatch.recordings.files import RecordingFiles
from overwatch.recordings.index import Located, read_entry
from overwatch.recordings.tidy import CompactionJob, Report, tidy
from overwatch.serve.recording import RecordingWriter
from tests import fakes
from tests.fakes import SECOND, START_NS

DAY = 86_400 * SECOND


class Recorder:
    """A recording whose time is the test's."""

    def __init__(self, folder: Path, rules: Rules | None = None, first: int = 0) -> None:
        self.folder = folder
        self.rules = rules or Rules()
        self.sequence = first
        self.newest = 0
        self._seq = 1 + first
        self.writer = RecordingWriter(folder, (Signal.LOGS, Signal.METRICS))

    def emit(self, second: float, events: Sequence[Event]) -> Batch:
        """One batch received 5 ms after this second; its events are numbered on."""
        body = request(fakes.records(events, first_seq=self._seq), {})
        self._seq += len(events)
        return self.write(second, Signal.LOGS, body)

    def write(self, second: float, signal: Signal, body: bytes) -> Batch:
        """One batch received 5 ms after this second."""
        self.sequence += 1
        self.newest = max(self.newest + 1, START_NS + round(second * SECOND) + 5_000_000)
        batch = Batch(sequence=self.sequence, stamp=self.newest, signal=signal, body=body)
        self.writer.write(batch)
        return batch

    def steps(self, first: float, last: float, hz: float = 10, envs: int = 4) -> None:
        """Env steps and policy updates from one second up to another."""
        count = round((last - first) * hz)
        for step in range(count):
            second = first + step / hz
            at = START_NS + round(second * SECOND)
            rewards = np.sin(np.arange(envs) + second).astype(np.float32)
            events = [
                fakes.policy(at, int(second * hz), kl_divergence=0.01 + (step % 7) / 1000, entropy=0.5),
                fakes.envs(at, range(envs), int(second * hz), reward=rewards.tolist()),
            ]
            if step % round(hz) == 0:
                events.append(fakes.ended(at, [step % envs], [1.0]))
            self.emit(second, events)

    def tidy(self, through: int | None = None, now: int | None = None, rules: Rules | None = None) -> Report:
        """Clean up as the collector would."""
        number = self.writer.number - 1 if through is None else through
        return tidy(
            CompactionJob(
                folder=str(self.folder), now=now or self.newest, through=number, rules=rules or self.rules
            )
        )


def batches(folder: Path) -> list[Batch]:
    """Every batch that a folder holds, in the order of its index."""
    files, found = RecordingFiles(folder), []
    for piece, line in files.lines():
        entry = read_entry(line)
        if isinstance(entry, Located):
            data = files.read(files.stored(piece, entry.file), entry.offset, entry.length)
            body = from_json(entry.signal, data)
            found.append(Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=body))
    return found


def records(found: Sequence[Batch]) -> list[Record]:
    """What batches hold."""
    return [record for batch in found for record in decode(batch.signal, batch.body).records]


def facts(found: Sequence[Batch]) -> list[Record]:
    """What is no number."""
    return [record for record in records(found) if not isinstance(record.event, Measured)]


def names(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {path.name for path in folder.iterdir()} - {"tidy.lock"}
