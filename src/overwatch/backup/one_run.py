"""The recording of one run, taken out of a collector's recording, and kept in a folder or an object store.

Runs as a process of its own (`python -m overwatch.backup.one_run JOB`), with low priority, and may be killed
at any moment: what is kept is a backup, whole or not there. Rules: batches of the run keep their order and
their stamps, so that a replay shows the run as it was; nothing of other runs is in it. Within the limits the
newest runs stay. Must not know who started it.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from overwatch.background import give_way
from overwatch.backup.manifest import BackupError, moment_of
from overwatch.backup.place import names, prune, save
from overwatch.journal import Batch, Signal
from overwatch.objects.retrying import Patience
from overwatch.objects.store import Store, below, open_store
from overwatch.otlp import jsonl, wire
from overwatch.recordings.compaction import Rules, runs_in
from overwatch.recordings.files import RecordingFiles
from overwatch.recordings.index import Ended, Located, Raised, RecordingError, Started, read_entry
from overwatch.recordings.tidy import CompactionJob, tidy
from overwatch.serve.recording import RecordingWriter

FOLDER: Final = "otlp"
_LONGEST_NAME: Final = 100
_ROTATE_BYTES: Final = 64 << 20
_MIB: Final = 1 << 20
_DAY_S: Final = 86_400


class RunJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is to be kept."""

    recording: str
    run_id: str
    place: str
    """A folder or a URL."""
    keep_days: float | None = None
    keep_runs: int | None = None
    keep_mib: float | None = None
    deadline_s: float = 120.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    bytes: int = 0
    batches: int = 0
    removed: int = 0
    """Older runs that went for the limits."""
    error: str | None = None


_job: Final = msgspec.json.Decoder(RunJob).decode


def name_of(run_id: str) -> str:
    """The part of a place that a run has, which any store takes."""
    # A percent sign would be taken for an escape by URLs of stores.
    quoted = quote(run_id, safe="").replace("%", "=")
    if len(quoted) <= _LONGEST_NAME and not quoted.startswith("."):
        return quoted
    return f"run-{quoted[: _LONGEST_NAME // 2].strip('.')}-{sha256(run_id.encode()).hexdigest()[:16]}"


def keep(job: RunJob) -> Report:
    """Keep a run, then remove what is beyond the limits. Raises `ValueError`, `OSError`."""
    patience = Patience(deadline_s=job.deadline_s)
    with tempfile.TemporaryDirectory(prefix="overwatch-run-") as scratch:
        batches = extract(Path(job.recording), job.run_id, Path(scratch, FOLDER))
        if not batches:
            raise BackupError(f"{job.recording} holds nothing of run {job.run_id!r} any more")
        store = open_store(below(job.place, name_of(job.run_id)), patience)
        saved = save(Path(scratch), store, time.time_ns())
    # Another attempt of the run takes the place of the one before, once it is there.
    prune(store, 1)
    removed = within(open_store(job.place, patience), job, time.time())
    return Report(bytes=saved.bytes, batches=batches, removed=removed)


def extract(recording: Path, run_id: str, into: Path) -> int:
    """Write one run's batches, starts, findings and ends as a recording, packed; how many batches it has.

    Raises `OSError`, `RecordingError`.
    """
    files, count, last = RecordingFiles(recording), 0, 1
    writer = RecordingWriter(into, [signal for signal in Signal if signal is not Signal.START])
    try:
        for entry, line in _entries(files):
            match entry:
                case Located():
                    body = _body(files, entry, run_id)
                    if body is not None:
                        writer.write(msgspec.structs.replace(_batch(entry), body=body))
                        count, last = count + 1, entry.stamp
                case Started():
                    body = msgspec.json.encode(msgspec.json.decode(line)["body"])
                    writer.start(msgspec.structs.replace(_batch(entry), body=body))
                case Raised() if entry.run == run_id:
                    writer.raised(msgspec.json.decode(line))
                case Ended():
                    writer.end(entry.end)
                case _:
                    pass
            if writer.size > _ROTATE_BYTES:
                writer.rotate()
        writer.rotate()
    finally:
        writer.close()
    rules = Rules(thins=False, run_mib=float("inf"), folder_mib=float("inf"))
    tidy(CompactionJob(folder=str(into), now=last, through=writer.number - 1, rules=rules))
    return count


def _entries(files: RecordingFiles) -> Iterator[tuple[Any, bytes]]:
    for piece, line in files.lines():
        try:
            entry = read_entry(line)
            if isinstance(entry, Located):
                entry = msgspec.structs.replace(entry, file=files.stored(piece, entry.file))
        except (msgspec.DecodeError, RecordingError):
            continue
        yield entry, line


def _batch(entry: Located | Started) -> Batch:
    return Batch(sequence=entry.sequence, stamp=entry.stamp, signal=entry.signal, body=b"")


def _body(files: RecordingFiles, entry: Located, run_id: str) -> bytes | None:
    """What a batch holds of the run, `None` where that is nothing or cannot be read."""
    try:
        line = files.line(entry)
        if run_id not in runs_in(line):
            return None
        body = jsonl.from_json(entry.signal, line)
    except (FileNotFoundError, jsonl.MalformedJson):
        return None
    if runs_in(line) == [run_id]:
        return body
    request = wire.parse(entry.signal, body)
    ((_, resources),) = request.ListFields()
    for number in reversed(range(len(resources))):
        named = {one.key: one.value.string_value for one in resources[number].resource.attributes}
        if named.get(wire.RUN_ID) != run_id:
            del resources[number]
    return request.SerializeToString() if len(resources) else None


def within(store: Store, job: RunJob, now_s: float) -> int:
    """Remove the oldest runs that are beyond a limit; how many went."""
    held = [(newest, name, size) for name, size, newest in _runs(store, job)]
    held.sort(reverse=True)
    total, gone = 0, 0
    for number, (newest, name, size) in enumerate(held):
        total += size
        is_old = job.keep_days is not None and now_s - moment_of(newest).timestamp() > job.keep_days * _DAY_S
        is_beyond = job.keep_runs is not None and number >= job.keep_runs
        is_large = job.keep_mib is not None and number > 0 and total > job.keep_mib * _MIB
        if is_old or is_beyond or is_large:
            keys = [entry.key for entry in store.list(name)]
            # The manifest first: a run is whole or not there.
            store.delete(*sorted(keys, key=lambda key: "/backups/" not in key))
            gone += 1
    return gone


def _runs(store: Store, job: RunJob) -> Iterator[tuple[str, int, str]]:
    """Each run's part of the place, its bytes, and the name of its newest backup."""
    sizes: dict[str, int] = {}
    for entry in store.list():
        name = entry.key.partition("/")[0]
        sizes[name] = sizes.get(name, 0) + entry.size
    for name, size in sizes.items():
        every = names(open_store(below(job.place, name), store.patience))
        if every:
            yield name, size, every[-1]


def main() -> int:
    """A job as JSON on the command line, its report as JSON on stdout; 1 where the run is not kept."""
    give_way()
    try:
        report = keep(_job(sys.argv[1]))
    except (OSError, ValueError) as error:
        report = Report(error=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(report))
    return 0 if report.error is None else 1


if __name__ == "__main__":
    sys.exit(main())
