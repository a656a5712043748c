"""Runs that made room in memory, kept on disk: one packed file a run, opened again when a view asks for it.

Rules: a file is written whole, by one thread of its own; the oldest go, by the rules of `keeping`, each with
one removal, so that a kill in between leaves the rest to the next life. Only files that were written here go.
What another version kept is listed and not opened: the recording holds it. A full disk is waited for; one
that fails otherwise loses a run's last picture and nothing of its recording. Must not know why a run was
evicted.
"""

import errno
import hashlib
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from overwatch import __version__
from overwatch.diagnose.judging import Judging
from overwatch.projection.run import run_line
from overwatch.recordings.checkpoints import write_whole
from overwatch.regular import open_regular, read_regular
from overwatch.runs import Tracked
from overwatch.serve.keeping import Limits, Reason, beyond
from overwatch.snapshot import Baseline, RunLine, Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery

AS_IT_WAS: Final = "archived: shown as it was"
_SUFFIX: Final = ".run"
_LEVEL: Final = 3
_MOST_WAITING: Final = 64
"""Runs that wait for a disk which does not answer; their memory is not free before."""
_MOST_BYTES: Final = 1 << 30
"""Of one run, unpacked."""
_MOST_HEAD: Final = 1 << 16
_CLEAN_S: Final = 10.0
_WHY: Final[dict[Reason, str]] = {
    "age": "it is older than archive_days", "count": "archive_runs newer ones are there",
    "bytes": "all have more than their room",
}  # fmt: skip
_OPEN: Final = 2
"""Runs that are kept ready: who looks at one often asks for further views of it."""

_log = logging.getLogger("overwatch.collector")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file, as JSON."""

    version: str
    line: RunLine


_head: Final = msgspec.json.Decoder(_Head).decode


def as_it_was(snapshot: Snapshot) -> Snapshot:
    """The last picture of a run that made room, marked as one."""
    verdict = msgspec.structs.replace(snapshot.verdict, note=AS_IT_WAS)
    return msgspec.structs.replace(snapshot, verdict=verdict)


class ArchiveError(ValueError):
    """A run cannot be opened; the message names what can be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How long runs are kept, besides what fits; as shipped for ever."""

    limits: Limits = field(default_factory=Limits)
    now_s: Callable[[], float] = time.time
    """Unix seconds, by the clock of the ticks."""
    count: Callable[[Reason], None] = lambda _: None
    """Given why a run went."""


class Archive:
    """The folder of evicted runs. Reading is safe from any thread."""

    def __init__(
        self,
        folder: Path,
        most_bytes: Callable[[], int],
        how: Callable[[], tuple[Judging, Baseline | None]],
        report: Callable[[str | None], None] = lambda _: None,
        keeping: Keeping | None = None,
    ) -> None:
        """`how` is what runs are judged with; `report` gets why the disk refuses, `None` once it does not."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._how = how
        self._report = report
        self._keeping = keeping or Keeping()
        self._lock = threading.Lock()
        self._lines: dict[str, tuple[_Head, int]] = {}
        """Head and size of each run's file, the oldest first."""
        self._opened: OrderedDict[str, Tracked] = OrderedDict()
        self._waiting: queue.Queue[Tracked | None] = queue.Queue(_MOST_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
        self.lost = 0
        """Runs whose last picture could not be kept."""

    def start(self) -> None:
        """Read what earlier lives kept, and begin to write."""
        for (_, size), path in sorted((_stat(path), path) for path in self._folder.glob(f"*{_SUFFIX}")):
            head = _head_of(path)
            if head is not None and path == self._path(head.line.run_id):
                self._lines[head.line.run_id] = head, size
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether its thread goes on."""
        return self._thread.is_alive()

    @property
    def bytes(self) -> int:
        """What all have on disk."""
        with self._lock:
            return sum(size for _, size in self._lines.values())

    def keep(self, run: Tracked) -> None:
        """Queue a run that was evicted, which changes no more; returns at once."""
        try:
            self._waiting.put_nowait(run)
        except queue.Full:
            self._lose(run, "the disk did not answer for too long")

    def stop(self) -> None:
        """Write what waits; a second call does nothing."""
        self._stopping.set()
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def lines(self) -> list[RunLine]:
        """One line for each run that is kept."""
        with self._lock:
            return [head.line for head, _ in self._lines.values()]

    def holds(self, run_id: str) -> bool:
        """Whether a run is kept."""
        with self._lock:
            return run_id in self._lines

    def snapshot(self, run_id: str, view: View) -> Snapshot | None:
        """The last picture of a run, `None` where it is not kept.

        Raises `ArchiveError` for one that cannot be opened.
        """
        run = self._ready(run_id)
        if run is None:
            return None
        with self._lock:
            shown = run.project((view,)).get(view)
        return None if shown is None else as_it_was(shown)

    def history(self, run_id: str, query: HistoryQuery) -> History | None:
        """The past of a run, `None` where it is not kept. Raises as `snapshot`."""
        run = self._ready(run_id)
        return None if run is None else run.history(query)

    def heat(self, run_id: str, query: HeatQuery) -> HeatMap | None:
        """Envs or lanes of a run over time, `None` where it is not kept. Raises as `snapshot`."""
        run = self._ready(run_id)
        return None if run is None else run.heat_map(query)

    def _ready(self, run_id: str) -> Tracked | None:
        with self._lock:
            known, run = self._lines.get(run_id), self._opened.get(run_id)
        if known is None:
            return None
        if run is None:
            run = self._open(run_id, known[0])
        with self._lock:
            self._opened[run_id] = run
            self._opened.move_to_end(run_id)
            while len(self._opened) > _OPEN:
                self._opened.popitem(last=False)
        return run

    def _open(self, run_id: str, head: _Head) -> Tracked:
        hint = "its recording still shows it: overwatch replay"
        if head.version != __version__:
            raise ArchiveError(f"run {run_id!r} was put away by version {head.version}; {hint}")
        path = self._path(run_id)
        try:
            packed = read_regular(path, _MOST_BYTES).partition(b"\n")[2]
            size = zstandard.get_frame_parameters(packed).content_size
            fits = size <= _MOST_BYTES
            run = Tracked.load(zstandard.ZstdDecompressor().decompress(packed)) if fits else None
        except (OSError, ValueError, zstandard.ZstdError, msgspec.MsgspecError) as error:
            raise ArchiveError(f"{path} cannot be read ({error}); {hint}") from error
        if run is None:
            raise ArchiveError(f"{path} is too large to be opened; {hint}")
        how, baseline = self._how()
        run.judge(run.assessment.tick, how, baseline, None)
        return run

    def _run(self) -> None:
        self._shrink()
        while True:
            try:
                run = self._waiting.get(timeout=_CLEAN_S)
            except queue.Empty:
                self._shrink()
                continue
            if run is None:
                return
            try:
                self._write_patiently(run)
            except OSError as error:
                self._lose(run, f"{error.filename or self._folder}: {error.strerror or error}")
            except Exception as error:  # noqa: BLE001 a named border: one run's last picture
                _log.error("a run cannot be archived", exc_info=error)
                self._lose(run, f"an error of ours: {type(error).__name__}: {error}")
            else:
                self._shrink()

    def _shrink(self) -> None:
        """Keep within the budget; a border to the disk."""
        try:
            self._clean()
        except OSError as error:
            self._report(f"{error.filename or self._folder}: {error.strerror or error}")
        else:
            self._report(None)

    def _lose(self, run: Tracked, why: str) -> None:
        self.lost += 1
        self._report(f"run {run.state.origin.run_id!r} is not archived: {why}")

    def _write_patiently(self, run: Tracked) -> None:
        """As `_write`, tried again while the disk is full, until the archive stops. Raises `OSError`."""
        while True:
            try:
                return self._write(run)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or self._stopping.is_set():
                    raise
                self._report(f"{error.filename or self._folder}: {error.strerror}; runs wait to be archived")
                self._stopping.wait(_CLEAN_S)

    def _write(self, run: Tracked) -> None:
        if run.judged is None:
            how, baseline = self._how()
            run.judge(run.assessment.tick, how, baseline, None)
        shown = run.project((View(),)).get(View())
        if shown is None:
            raise ValueError(run.fault or "it cannot be shown")
        run_id = run.state.origin.run_id
        line = msgspec.structs.replace(run_line(run_id, shown, newest=False), archived=True)
        head = _Head(version=__version__, line=line)
        packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(run.dump())
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        data = msgspec.json.encode(head) + b"\n" + packed
        write_whole(self._path(run_id), data)
        with self._lock:
            self._lines.pop(run_id, None)
            self._lines[run_id] = head, len(data)
            self._opened.pop(run_id, None)

    def _clean(self) -> None:
        """Remove what is beyond a limit; others may have made the budget smaller. Raises `OSError`."""
        keeping = self._keeping
        with self._lock:
            kept = [(head.line, size) for head, size in self._lines.values()]
        limits = msgspec.structs.replace(keeping.limits, bytes=self._most_bytes())
        for run_id, why in beyond(kept, limits, keeping.now_s()):
            with self._lock:
                del self._lines[run_id]
                self._opened.pop(run_id, None)
            self._path(run_id).unlink(missing_ok=True)
            keeping.count(why)
            _log.info("the last picture of run %r was removed from the archive: %s", run_id, _WHY[why])

    def _path(self, run_id: str) -> Path:
        # Ids are of any length and may hold any character.
        return self._folder / f"{hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest()}{_SUFFIX}"


def _head_of(path: Path) -> _Head | None:
    """What a file of ours begins with; `None` for what was not written here, as a link is."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        with open_regular(path) as file:
            return _head(file.readline(_MOST_HEAD))
    except (OSError, msgspec.MsgspecError):
        return None


def _stat(path: Path) -> tuple[int, int]:
    """When a file was written and its size; zeros for one that is gone."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size
