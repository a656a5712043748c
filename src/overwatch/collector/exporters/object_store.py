"""The exporter `object_store`: the recording of each run that ended, in a folder or an object store.

Rules: a process of its own takes the run out of the recording and writes it, one at a time, so neither a
store that is away nor a large run holds up anything; it is tried again, later and later, until it is there.
What was kept and what waits is remembered over restarts; a run that ends again is kept again. At most so many
runs wait, and others are noticed again by a later frame. The local recording stays as its own limits have it;
the archive's age and count spare the runs that are not kept yet. Must not know how a run is taken out.
"""

import logging
import subprocess
import sys
import threading
import time
from typing import Final

import msgspec

from overwatch.background import give_way
from overwatch.backup.one_run import Report, RunJob
from overwatch.collector.context import Context
from overwatch.collector.setting_types import bounded
from overwatch.fold import DEFAULT_VIEW, Frame
from overwatch.objects.store import SCHEMES
from overwatch.snapshot import RunLine

NAME: Final = "object_store"
_KEPT: Final = "overwatch_exporter_kept_runs"
_FAILED: Final = "overwatch_exporter_failed_uploads"
_MOST_WAITING: Final = 1024
_MOST_REMEMBERED: Final = 1 << 16
"""More than the archive holds: one that is forgotten there would count as not kept."""
_LOOK_S: Final = 0.25
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
_STOP_S: Final = 5.0
_WORDS: Final = 500
_REPORT: Final = msgspec.json.Decoder(Report)
_log = logging.getLogger("overwatch.collector")


class ObjectStoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.object_store`."""

    place: str = ""
    """A folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; each run has a part."""
    after_s: float = 60
    """Time from the end of a run until it is kept: what comes late is in it."""
    timeout_s: float = 120
    """Time for which one request is repeated until the whole run is tried again later."""
    keep_days: float | None = None
    """Runs that were kept earlier go; none do if left out."""
    keep_runs: int | None = None
    """So many runs stay, the newest."""
    keep_mib: float | None = None
    """So many MiB stay, of the newest runs; the newest stays in any case."""

    def __post_init__(self) -> None:
        bounded(self, "after_s", least=0)
        bounded(self, "timeout_s", "keep_days", "keep_runs", "keep_mib")
        scheme, found, _ = self.place.partition("://")
        if found and scheme not in SCHEMES:
            raise ValueError(
                f"place {self.place!r} is no store; use a folder, or a URL of {', '.join(SCHEMES)}"
            )

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be kept, and what to do; `None` where it is there."""
        if self.place:
            return None
        return "place", "the store has no place; give one, e.g. s3://bucket/runs"


class _Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The note."""

    kept: dict[str, str]
    """By run id what it ended as."""
    waiting: dict[str, str] = {}
    """Likewise, of those that are not kept yet."""


_remembered: Final = msgspec.json.Decoder(_Remembered).decode


class ObjectStoreExporter:
    """A frame sink that keeps runs."""

    def __init__(self, config: ObjectStoreConfig, context: Context, name: str = NAME) -> None:
        self._config, self._context, self._name = config, context, name
        self._note = context.journal.note(name)
        remembered = self._read()
        self._kept = remembered.kept
        self._waiting = {run: (ended, time.monotonic()) for run, ended in remembered.waiting.items()}
        """By run id what it ended as, and from when on it is due, monotonic."""
        self._is_noted = True
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        context.needing.append(self.needs)

    def start(self) -> None:
        """Begin to keep runs."""
        for series in (_KEPT, _FAILED):
            self._context.tally.add(series, 0, exporter=self._name)
        self._thread.start()
        self._context.health.watch(self._name, self._thread.is_alive)

    def publish(self, frame: Frame) -> None:
        """Note the runs that ended; returns at once."""
        for (run_id, view), snapshot in frame.snapshots.items():
            outcome = snapshot.run.outcome
            if view != DEFAULT_VIEW or outcome is None:
                continue
            ended = f"{snapshot.run.attempt or 0} {outcome}"
            with self._lock:
                is_new = self._kept.get(run_id) != ended and run_id not in self._waiting
                if is_new and len(self._waiting) < _MOST_WAITING:
                    self._waiting[run_id] = ended, time.monotonic() + self._config.after_s
                    self._is_noted = False

    def needs(self, line: RunLine) -> bool:
        """Whether a run ended and is not kept yet; from any thread."""
        with self._lock:
            is_kept = line.run_id in self._kept and line.run_id not in self._waiting
        return line.outcome is not None and not is_kept

    def close(self) -> None:
        """End what is under way; the next life begins it anew. A second call does nothing."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)
            if not self._is_noted:
                self._remember()

    stop = close

    def _run(self) -> None:
        resumes = 0.0
        while not self._stopping.wait(_LOOK_S):
            if not self._is_noted:
                self._remember()
            due = self._due() if time.monotonic() >= resumes else None
            if due is None:
                continue
            run_id, ended = due
            try:
                error = self._keep(run_id)
            except OSError as trouble:
                error = str(trouble)
            if error is None:
                self._done(run_id, ended)
            elif not self._stopping.is_set():
                with self._lock:
                    # Behind the others: one that cannot be kept holds none of them up.
                    self._waiting[run_id] = self._waiting.pop(run_id)
                self._context.tally.add(_FAILED, 1, exporter=self._name)
                self._context.health.failed(self._name, f"run {run_id}: {error}")
                pause_s = min(_FIRST_PAUSE_S * 2.0**self._failures, _LONGEST_PAUSE_S)
                resumes = time.monotonic() + pause_s
                self._failures = min(self._failures + 1, 16)

    def _due(self) -> tuple[str, str] | None:
        now = time.monotonic()
        with self._lock:
            return next(((run, ended) for run, (ended, at) in self._waiting.items() if at <= now), None)

    def _keep(self, run_id: str) -> str | None:
        """Run the process once; what went wrong. Raises `OSError` where it cannot be started."""
        config, recording = self._config, self._context.recording
        if recording is None:
            return "there is no recording to take it from; add the exporter otlp_file"
        job = RunJob(
            recording=str(recording), run_id=run_id, place=config.place, keep_days=config.keep_days,
            keep_runs=config.keep_runs, keep_mib=config.keep_mib, deadline_s=config.timeout_s,
        )  # fmt: skip
        command = [sys.executable, "-m", "overwatch.backup.one_run", msgspec.json.encode(job).decode()]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            give_way(process.pid)
            while process.poll() is None:
                if self._stopping.wait(_LOOK_S):
                    process.terminate()
            printed = b"" if process.stdout is None else process.stdout.read()
        try:
            report = _REPORT.decode(printed)
        except msgspec.DecodeError:
            return f"its process ended with status {process.returncode}"
        return None if report.error is None else report.error[:_WORDS]

    def _done(self, run_id: str, ended: str) -> None:
        with self._lock:
            del self._waiting[run_id]
            self._kept.pop(run_id, None)
            self._kept[run_id] = ended
            while len(self._kept) > _MOST_REMEMBERED:
                del self._kept[next(iter(self._kept))]
        self._failures = 0
        self._context.tally.add(_KEPT, 1, exporter=self._name)
        self._context.health.recovered(self._name)
        self._remember()

    def _remember(self) -> None:
        with self._lock:
            waiting = {run: ended for run, (ended, _) in self._waiting.items()}
            note, self._is_noted = _Remembered(kept=self._kept, waiting=waiting), True
            data = msgspec.json.encode(note)
        if self._note is not None:
            try:
                self._note.write(data)
            except OSError as error:
                self._context.health.failed(self._name, f"what was kept is not remembered: {error}")

    def _read(self) -> _Remembered:
        try:
            data = None if self._note is None else self._note.read()
            return _Remembered(kept={}) if data is None else _remembered(data)
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("what was kept cannot be read, it is kept again: %s", error)
            return _Remembered(kept={})
