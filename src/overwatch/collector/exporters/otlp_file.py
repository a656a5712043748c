"""The exporter `otlp_file`: every accepted batch into a recording, once, and the recording kept small.

Rules: a thread and a cursor of its own, so that a slow disk holds up nothing else. A full disk is waited for:
the journal keeps what waits, and refuses more once it is full too. A disk that fails otherwise is tried again
for as long as the journal has room; then batches are lost, and counted. Its place in the
journal is kept together with the length of every file: the next life cuts the files to that and goes on, so
that no line is doubled or missing. What was rotated is given away once that place is kept too: to a process
that keeps the recording small, never two at a time; it is no loss when it is killed. Findings are noted in
the index as they are seen open, so that the numbers around them can be kept. Names of settings are those of
otelcol's `file` exporter where it has one. Must not know what the batches mean, nor how a recording is laid
out.
"""

import contextlib
import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from overwatch.background import give_way
from overwatch.collector.context import Context
from overwatch.collector.setting_types import bounded
from overwatch.collector.signals import WIRES
from overwatch.fold import DEFAULT_VIEW, Frame
from overwatch.journal import Batch, CursorFile, Place, Signal
from overwatch.otlp.decode import items_of
from overwatch.recordings.checkpoints import Leaving
from overwatch.recordings.compaction import Rules
from overwatch.recordings.tidy import CompactionJob, Report
from overwatch.serve.files import Mark
from overwatch.serve.recording import RecordingWriter
from overwatch.serve.stream import FrameNotifier
from overwatch.snapshot import Finding

NAME: Final = "otlp_file"
_MIB: Final = 1 << 20
_MINUTE_NS: Final = 60_000_000_000
_PIECES: Final = 8
"""Of so many pieces a recording is at least, so that one can go and most is left."""
_WAIT_S: Final = 0.25
_KEEP_S: Final = 2.0
"""Time between two places that are kept: what a restart writes again at most."""
_MOST_NOTED: Final = 1 << 16
"""Findings remembered; beyond it the oldest are forgotten."""
_EVERY_S: Final = 60.0
"""Time between two clean-ups, in seconds: something may have come of age."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_COMPLAINT_BYTES: Final = 2000
_reported: Final = msgspec.json.Decoder(Report).decode
_log = logging.getLogger("overwatch.collector")


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the section; unknown keys are errors."""


class RotationConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.rotation`: whichever comes first begins new files."""

    max_megabytes: int = 64
    """Most MiB of the files that are written to, all signals and their index together."""
    max_minutes: float = 10
    """Longest time of the files that are written to; their numbers are thinned after it at the earliest."""
    max_days: float | None = None
    """Older pieces go, whatever the budget; none do if left out."""

    def __post_init__(self) -> None:
        bounded(self, "max_megabytes", "max_minutes", "max_days")


class BudgetConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.budget`: beyond it numbers are thinned early, then the oldest pieces go."""

    run_mib: int = 2048
    """Most MiB of one run."""
    folder_mib: int = 10240
    """Most MiB of all runs together."""

    def __post_init__(self) -> None:
        bounded(self, "run_mib")
        if self.folder_mib < self.run_mib:
            raise ValueError(f"folder_mib {self.folder_mib} is less than run_mib {self.run_mib}")


class ThinningConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file.thinning`: how numbers grow fewer with age; facts are kept whole."""

    enabled: bool = True
    """Whether age thins numbers; what is beyond the budget is thinned in any case."""
    whole_minutes: float = 10
    """For so long all numbers are kept..."""
    second_hours: float = 6
    """...for so long one a second, then one a minute: of each n, least, most, last, how many were bad."""
    before_s: float = 120
    """All numbers are kept from so many seconds before a finding became true..."""
    after_s: float = 30
    """...to so many seconds after it opened."""

    def __post_init__(self) -> None:
        bounded(self, "whole_minutes", "second_hours", "before_s", "after_s", least=0)
        if self.second_hours * 60 < self.whole_minutes:
            raise ValueError(
                f"second_hours {self.second_hours} is less than whole_minutes {self.whole_minutes}"
            )


class OtlpFileConfig(_Section, frozen=True, kw_only=True):
    """`exporters.otlp_file`."""

    path: Path
    """The folder of the files and their index."""
    rotation: RotationConfig = RotationConfig()
    """When new files begin."""
    compression: Literal["zstd", "none"] = "zstd"
    """What is done to files once they are rotated."""
    budget: BudgetConfig = BudgetConfig()
    """How much disk is used."""
    thinning: ThinningConfig = ThinningConfig()
    """What is kept of numbers."""

    def __post_init__(self) -> None:
        if self.budget.run_mib < 2 * self.rotation.max_megabytes:
            raise ValueError(
                f"budget.run_mib {self.budget.run_mib} is less than two times rotation.max_megabytes "
                f"{self.rotation.max_megabytes}"
            )

    def rules(self, room: int) -> Rules:
        """The same, as compaction takes it, within so many bytes on disk."""
        folder = min(float(self.budget.folder_mib), room / _MIB)
        return Rules(
            packs=self.compression == "zstd",
            thins=self.thinning.enabled,
            whole_minutes=self.thinning.whole_minutes,
            second_hours=self.thinning.second_hours,
            max_days=self.rotation.max_days,
            piece_mib=min(float(self.rotation.max_megabytes), folder / _PIECES),
            run_mib=min(float(self.budget.run_mib), folder),
            folder_mib=folder,
        )

    def live_bytes(self, room: int) -> int:
        """Size at which new files begin, where a recording may have so many bytes on disk."""
        return max(_MIB, min(self.rotation.max_megabytes * _MIB, room // _PIECES))


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept with the place."""

    folder: str
    marks: dict[str, Mark]


_noted: Final = msgspec.json.Decoder(_Note).decode


class OtlpFileExporter:
    """Writes `<signal>.jsonl` and `index.jsonl` in a folder, and keeps the folder small."""

    def __init__(self, config: OtlpFileConfig, context: Context, name: str = NAME) -> None:
        self._name = name
        self._cleaning = f"{name}/compaction"
        """The name of the clean-up in health."""
        self._config = config
        self._context = context
        self._noticing = Noticing(context.notifier)
        self._room = context.storage.room(name)
        self._tidying = Tidying(config, self._room, self._tidied)
        self._newest = 0
        """Stamp of the newest batch that was written."""
        self._given = 0
        """The newest piece that a restart does not cut any more."""
        self._folder = str(config.path)
        self._writer = RecordingWriter(config.path, context.exporting(name))
        self._kept: CursorFile | None = context.journal.place(name)
        place = None if self._kept is None else self._kept.place
        if self._kept is None:
            self._cursor = context.journal.cursor(name)
        else:
            self._cursor = context.journal.cursor(name, 0 if place is None else place.position)
        self._written = self._cursor.position
        """Sequence of the first batch that is not in the files."""
        self._keep_at = 0.0
        """When to keep the place next, monotonic: first at once, so that short lives get on too."""
        self._is_ready = self._kept is None
        """The files are what they were at the place that was kept, and there is one."""
        self._is_dirty = False
        """Something was written since the place was kept."""
        self._is_full = False
        """The disk had no room when it was last written to."""
        self._kept_number = 0
        """The piece that was written to then; a later number is a rotation since, by whichever life."""
        self._stopping = threading.Event()
        self._end: int | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def leaving(self) -> Leaving:
        """Leaves checkpoints beside this recording."""
        return Leaving(self._config.path, min(self._config.budget.folder_mib * _MIB, self._room()))

    def start(self) -> None:
        """Begin to write."""
        for signal in self._writer.signals:
            for verb in ("sent", "send_failed"):
                items = WIRES[signal].items
                self._context.tally.add(f"otelcol_exporter_{verb}_{items}", 0, exporter=self._name)
        self._context.tally.add("overwatch_exporter_faults", 0, exporter=self._name)
        budget = self._config.budget
        self._context.tally.show(
            "overwatch_recording_budget_bytes", budget.folder_mib * _MIB, exporter=self._name
        )
        self._context.tally.show(
            "overwatch_recording_run_budget_bytes", budget.run_mib * _MIB, exporter=self._name
        )
        self._thread.start()
        self._context.health.watch(self._name, self._thread.is_alive)

    def end_at(self, tick: int | None) -> None:
        """Record at which tick the recording ends, in Unix nanoseconds; written by `stop`."""
        self._end = tick

    def stop(self) -> None:
        """Write all that was accepted, then the end, and let go of the files."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._tidying.stop()
        self._writer.close()
        if self._kept is not None:
            self._kept.close()

    def _run(self) -> None:
        self._context.settle()
        goes_on = True
        while not self._stopping.is_set():
            goes_on = self._export_all(self._cursor.wait(_WAIT_S))
            if self._is_ready:
                self._guarded(self._note_findings)
            if self._is_dirty and time.monotonic() >= self._keep_at:
                self._guarded(self._keep)
            self._tidy()
        # What comes after a batch that is left is left too: the next life goes on at one place.
        while goes_on and (batches := self._cursor.wait(0)):
            goes_on = self._export_all(batches)
        end = self._end
        if self._written >= self._cursor.position and end is not None:
            self._is_dirty |= self._guarded(lambda: self._writer.end(end)) and self._kept is not None
        if self._is_dirty:
            self._guarded(self._keep)

    def _prepare(self) -> None:
        """Make the files what they were at the place that was kept, so that nothing is written twice."""
        if self._is_ready or self._kept is None:
            return
        if self._kept.place is not None:
            self._restore(self._kept.place)
        # A restart goes back over one rotation: one of the last life's must be behind the place by now.
        self._keep()
        self._is_ready = True

    def _restore(self, place: Place) -> None:
        try:
            note = _noted(place.note)
        except msgspec.DecodeError:
            return
        if note.folder == self._folder:
            self._writer.go_back(note.marks, place.position)

    def _export_all(self, batches: list[Batch]) -> bool:
        """Write them in order; `False` when the rest is left to the next life."""
        for batch in batches:
            try:
                done = self._patiently(batch)
                # What could not be written is left to the next life, where there can be one.
                is_left = not done and self._kept is not None and self._stopping.is_set()
            except Exception as error:  # noqa: BLE001 the border: a fault of ours takes one batch
                self._spoiled(batch, error)
                done = is_left = False
            if is_left:
                return False
            if batch.signal in self._writer.signals:
                self._count(batch, "sent" if done else "send_failed")
            self._written = batch.sequence + 1
            self._is_dirty = self._kept is not None
        return True

    def _export(self, batch: Batch) -> None:
        self._prepare()
        self._rotate(batch.stamp)
        if batch.signal is Signal.START:
            self._writer.start(batch)
        elif batch.signal in self._writer.signals:
            self._writer.write(batch)
        self._newest = batch.stamp

    def _rotate(self, stamp: int) -> None:
        """Begin new files where it is time to. Raises `OSError`; the same batch is then tried again."""
        rotation, writer = self._config.rotation, self._writer
        is_full = writer.size >= self._config.live_bytes(self._room())
        is_old = writer.began is not None and stamp - writer.began > rotation.max_minutes * _MINUTE_NS
        if (is_full or is_old) and writer.number == self._kept_number:
            writer.rotate()
        if writer.number != self._kept_number:
            # A restart goes back over one rotation: before the next, this one must be behind the place.
            self._keep()

    def _give(self) -> None:
        """Every piece so far may be rewritten."""
        if self._given != self._writer.number - 1:
            self._given = self._writer.number - 1
            self._tidying.rotated()

    def _note_findings(self) -> None:
        for finding in self._noticing.fresh():
            self._writer.raised(finding)
            self._is_dirty = self._kept is not None

    def _tidy(self) -> None:
        """Let the folder be cleaned up when that is due."""
        try:
            self._tidying.look(self._newest, self._given)
        except OSError as error:
            self._context.health.failed(self._cleaning, str(error))

    def _tidied(self, report: Report) -> None:
        """The border to the process that cleans up: what it could not do is reported."""
        self._context.health.report(self._cleaning, report.error)
        tally = self._context.tally
        for what, size in report.removed:
            self._context.storage.remove(self._name, what, size)
        tally.show("overwatch_recording_bytes", report.bytes + self._writer.size, exporter=self._name)
        tally.show("overwatch_recording_pieces", report.pieces, exporter=self._name)
        tally.show_each("overwatch_recording_run_bytes", "rl_run_id", report.runs, exporter=self._name)
        tally.show_each("overwatch_recording_gone_records", "rl_run_id", report.gone, exporter=self._name)

    def _spoiled(self, batch: Batch, error: Exception) -> None:
        """A batch cannot be written, however often it is tried; logged the first time, and counted."""
        tally = self._context.tally
        if not tally.get("overwatch_exporter_faults", exporter=self._name):
            _log.error("%s: batch %d is left out; others go on", self._name, batch.sequence, exc_info=error)
        tally.add("overwatch_exporter_faults", 1, exporter=self._name)

    def _count(self, batch: Batch, verb: str) -> None:
        name = f"otelcol_exporter_{verb}_{WIRES[batch.signal].items}"
        self._context.tally.add(name, items_of(batch), exporter=self._name)

    def _patiently(self, batch: Batch) -> bool:
        """Try until it is written, or the disk fails and the journal needs the room; again at the stop."""
        while not self._guarded(lambda: self._export(batch)):
            if self._context.journal.is_pressed and not self._is_full:
                return False
            if self._stopping.wait(_WAIT_S):
                return self._guarded(lambda: self._export(batch))
        return True

    def _keep(self) -> None:
        """Keep the place together with the lengths of the files. Raises `OSError`."""
        self._keep_at = time.monotonic() + _KEEP_S
        if self._kept is not None:
            note = msgspec.json.encode(_Note(folder=self._folder, marks=self._writer.marks()))
            self._kept.save(Place(position=self._written, note=note), sync=True)
            self._cursor.keep(self._written)
        self._is_dirty = False
        self._kept_number = self._writer.number
        self._give()

    def _guarded(self, write: Callable[[], None]) -> bool:
        """The border to the disk: an error is logged once by health."""
        try:
            write()
        except OSError as error:
            place = error.filename or self._writer.index
            self._is_full = error.errno in _FULL
            self._context.health.failed(self._name, f"{place}: {error.strerror or error}")
            return False
        self._context.health.recovered(self._name)
        return True


class Noticing:
    """Which findings are open that were not noted yet, from the latest frame; used from one thread.

    One is noted once for each time that it became true; it lingers for seconds after it cleared, so that a
    look now and then misses none.
    """

    def __init__(self, notifier: FrameNotifier) -> None:
        self._notifier = notifier
        self._seen: Frame | None = None
        self._noted: dict[tuple[str, str, float], None] = {}

    def fresh(self) -> Iterator[dict[str, Any]]:
        """What was not noted before, as the index has it; noted once it was taken."""
        frame = self._notifier.latest
        if frame is None or frame is self._seen:
            return
        for (run_id, view), snapshot in frame.snapshots.items():
            if view != DEFAULT_VIEW:
                continue
            for finding in snapshot.findings:
                key = run_id, finding.id, finding.since
                if key not in self._noted:
                    yield _entry(run_id, finding, frame.tick)
                    self._noted[key] = None
        while len(self._noted) > _MOST_NOTED:
            del self._noted[next(iter(self._noted))]
        self._seen = frame


def _entry(run_id: str, finding: Finding, tick: int) -> dict[str, Any]:
    return {
        "finding": finding.id,
        "run": run_id,
        "tick": tick,
        "since": max(1, round(finding.since * 1e9)),
        "severity": finding.severity,
    }


class Tidying:
    """The process that keeps a recording small. Used from one thread; `stop` it."""

    def __init__(
        self, config: OtlpFileConfig, room: Callable[[], int], done: Callable[[Report], None]
    ) -> None:
        """`room` is how many bytes the recording may have on disk; `done` gets each report."""
        self._config = config
        self._room = room
        self._done = done
        self._process: subprocess.Popen[bytes] | None = None
        self._next_at = 0.0
        """Monotonic; a rotation brings it forward."""

    def rotated(self) -> None:
        """There is something to do."""
        self._next_at = 0.0

    def look(self, now: int, through: int) -> None:
        """Take a report, or start a clean-up that is due. `through` is the newest piece that may be touched.

        Raises `OSError` when the process cannot be started.
        """
        process = self._process
        if process is not None:
            if process.poll() is None:
                return
            self._process = None
            self._done(_report(*process.communicate()))
        if through > 0 and now > 0 and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _EVERY_S
            self._start(now, through)

    def stop(self) -> None:
        """End what is under way; what it had not finished is as if it had not begun."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(ValueError):
                process.communicate()

    def _start(self, now: int, through: int) -> None:
        thinning = self._config.thinning
        job = CompactionJob(
            folder=str(self._config.path),
            now=now,
            through=through,
            rules=self._config.rules(self._room()),
            before_s=thinning.before_s,
            after_s=thinning.after_s,
            parent=os.getpid(),
        )
        command = [sys.executable, "-m", "overwatch.recordings.tidy", msgspec.json.encode(job).decode()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        give_way(self._process.pid)


def _report(printed: bytes, complained: bytes) -> Report:
    """What the process reported; the last line of its errors where that cannot be read."""
    try:
        return _reported(printed)
    except msgspec.DecodeError:
        last = complained[-_COMPLAINT_BYTES:].decode(errors="replace").strip().rpartition("\n")[2]
        return Report(error=last or "the clean-up ended without a report")
