"""One recording for many readers: each sees its own moment, and none waits for the way of another.

Owns the one thread that works on the player, and the queue before it. Rules: a moment near to what was read
is shown at once; one that is far waits while the recording is looked through, a slice at a time, between what
the others request. The queue is bounded, and who has gone is passed over. With a sink for frames it stands at
the end, goes on as the recording grows, and looks through all of it; without one it works only on request,
and lets go of the player once none has come for long. Must not know who reads.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from overwatch.feeds.player import AnyPlayer, Cancelled
from overwatch.feeds.recording import RecordingError
from overwatch.feeds.survey import Mark
from overwatch.fold import DEFAULT_VIEW, FAST_NS, Frame
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.snapshot.timeline import Timeline, TimelineMark

MOST_VIEWS: Final = 32
"""Different views of the end that are made at once."""
MOST_WAITING: Final = 128
"""Requests that wait."""
IDLE_S: Final = 300.0
"""Without a sink the player is let go of after so long without a request."""
_SLICE_S: Final = 0.1
"""The others wait about so long."""
_NEAR: Final = 40
"""Ticks that are folded at once on the way to a moment..."""
_NEAR_S: Final = 0.5
"""...and more where they take less."""
_FASTEST_S: Final = 2e-4
"""Of a tick."""
_DETOUR: Final = 2
"""A way from the beginning is gone where it is no longer than so many times the shortest."""
_REFRESH_S: Final = 1.0
_PATIENCE: Final = 20.0
"""Reading what was added takes at most one part in so many of the time."""
_END: Final = 1 << 62
"""A moment after all."""
_NS: Final = 1_000_000_000
_T = TypeVar("_T")


class BusyError(ValueError):
    """Too much is requested at once; the message names what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    place: int | None
    """Where the player must be, Unix nanoseconds; anywhere with `None`."""
    work: Callable[[AnyPlayer], Any]
    coming: "Future[Any]"
    of_past: bool = False
    """Needs all that was before the place, which a log of snapshots has only once it was looked through."""


class SharedReplay:
    """A recording that is opened by its thread. Safe from any thread."""

    def __init__(
        self,
        opened: Callable[[], AnyPlayer],
        publish: Callable[[Frame], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """`publish` gets each frame of the end; the thread calls `settle` before it works."""
        self._opened = opened
        self._publish = publish
        self._clock = clock
        self._settle = settle
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._views: Counter[tuple[str | None, View]] = Counter()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._surveyed = False
        """All that is recorded so far was looked through."""
        self._refresh_at = 0.0
        self._tick_s = 2e-3
        """What a tick takes, as measured."""
        self._in_vain: set[tuple[str, View]] = set()
        """Views that cannot be had at the end."""
        self.frame: Frame | None = None
        """That of the end; `None` until it was reached, and without a sink."""
        self._is_behind = False
        """More was recorded since `frame`, for its own tick too."""
        self.read = 0.0
        """Which part was looked through."""
        self.failure: str | None = None
        """Why the recording cannot be opened, or be read any more."""

    def behind_s(self) -> float:
        """The end of a recording is of the past, and meant to be."""
        return 0.0

    def start(self) -> None:
        """Begin to read; without, the first request does."""
        with self._changed:
            self._begin()

    def stop(self) -> None:
        """End, also in the middle of a long way; who waits gets nothing."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()
        while self._jobs:
            self._jobs.popleft().coming.cancel()

    def watch(self, run_id: str | None, view: View) -> None:
        """Make a view of the end part of its frames, `None` being the newest run; raises `BusyError`."""
        with self._changed:
            if (run_id, view) not in self._views and len(self._views) >= MOST_VIEWS:
                raise BusyError(f"{MOST_VIEWS} different views are watched already; use one that is open")
            self._views[run_id, view] += 1
            self._changed.notify()

    def unwatch(self, run_id: str | None, view: View) -> None:
        """Withdraw one `watch`."""
        with self._changed:
            self._views[run_id, view] -= 1
            self._views += Counter()

    def snapshot(self, run_id: str | None, view: View, at: float) -> "Future[Snapshot | None]":
        """A view at a Unix time; `None` where there is no such run. Raises `BusyError`, as the others."""
        return self._request(_place(at), lambda player: player.look(run_id, view))

    def history(
        self, run_id: str | None, query: HistoryQuery, at: float | None = None
    ) -> "Future[History | None]":
        """The past of a run as it was at a Unix time, at the end without one; `None` where there is none."""
        return self._request(_place(at), lambda player: player.history(run_id, query), of_past=True)

    def heat(self, run_id: str | None, query: HeatQuery, at: float | None = None) -> "Future[HeatMap | None]":
        """Envs or lanes of a run over time, as `history`."""
        return self._request(_place(at), lambda player: player.heat(run_id, query), of_past=True)

    def timeline(self, run_id: str | None) -> "Future[Timeline | None]":
        """The moments of a run, as far as they are known; `None` once it is known that there is none."""
        return self._request(None, lambda player: self._line(player, run_id))

    def _request(
        self, place: int | None, work: Callable[[AnyPlayer], _T], *, of_past: bool = False
    ) -> "Future[_T]":
        coming: Future[_T] = Future()
        with self._changed:
            if len(self._jobs) >= MOST_WAITING:
                raise BusyError(f"{MOST_WAITING} requests wait for this recording already; try again")
            self._jobs.append(_Job(place=place, work=work, coming=coming, of_past=of_past))
            self._begin()
            self._changed.notify()
        return coming

    def _begin(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """The border of the thread: what cannot be read is the answer to all who request it."""
        self._settle()
        try:
            self._serve(self._open())
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001 as named
            self._fail(error)

    def _open(self) -> AnyPlayer:
        player = self._opened()
        player.recording.advanced = self._advanced
        self._surveyed, self._refresh_at = False, self._clock() + _REFRESH_S
        return player

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._thread = None
            expected = isinstance(error, (RecordingError, OSError))
            self.failure = str(error) if expected else f"an error of ours: {type(error).__name__}: {error}"
            waiting = tuple(self._jobs)
            self._jobs.clear()
        for job in waiting:
            if job.coming.set_running_or_notify_cancel():
                job.coming.set_exception(error)

    def _advanced(self, _: float) -> None:
        if self._stopping:
            raise Cancelled

    def _serve(self, player: AnyPlayer) -> None:
        turn = 0
        while not self._stopping:
            self._refresh(player)
            is_due = self._is_end_due()
            if is_due and self._is_near(player, player.last):
                self._show_end(player)
            elif (job := self._next(player)) is not None:
                self._do(player, job)
            elif is_due or self._jobs:
                turn += 1
                self._come_nearer(player, turn, is_due=is_due)
            elif self._publish is not None and not self._surveyed:
                self._look_ahead(player)
            elif not self._rest():
                return

    def _come_nearer(self, player: AnyPlayer, turn: int, *, is_due: bool) -> None:
        """A slice of the way to one of the far moments, each in turn."""
        jobs = self._waiting
        if is_due and turn % (len(jobs) + 1) == 0:
            if self._approach(player, player.last):
                self._show_end(player)
            return
        job = jobs[turn % len(jobs)] if jobs else None
        if job is not None and (job.place is None or self._approach(player, min(job.place, player.last))):
            with self._changed:
                self._jobs.remove(job)
            self._do(player, job)

    def _approach(self, player: AnyPlayer, place: int) -> bool:
        """Whether the moment can be shown now. To look through what lies before it serves others too."""
        if self._surveyed:
            return True
        if place - self._looked(player) <= _DETOUR * player.far(place) * FAST_NS:
            self._look_ahead(player)
            return False
        with self._slice() as ticks:
            return player.approach(place, ticks)

    def _rest(self) -> bool:
        """Until something is requested, or may have been recorded; `False` where that was not for long."""
        with self._changed:
            if self._jobs or self._stopping:
                return True
            wait_s = IDLE_S if self._publish is None else max(0.0, self._refresh_at - self._clock())
            if self._changed.wait(wait_s) or self._publish is not None or self._jobs:
                return True
            self._thread = None
            return False

    def _next(self, player: AnyPlayer) -> _Job | None:
        """The first that can be done at once; the others wait for what is looked through."""
        for job in self._waiting:
            if job.place is None or job.coming.cancelled() or self._is_near(player, job.place):
                with self._changed:
                    self._jobs.remove(job)
                return job
        return None

    @property
    def _waiting(self) -> tuple[_Job, ...]:
        """Only this thread removes any; what takes long is not done under the lock."""
        with self._changed:
            return tuple(self._jobs)

    def _is_near(self, player: AnyPlayer, place: int) -> bool:
        return player.far(min(place, player.last)) <= max(_NEAR, _NEAR_S / self._tick_s)

    def _looked(self, player: AnyPlayer) -> int:
        """The moment up to which all was looked through."""
        return player.first + int(player.looked * (player.last - player.first))

    @contextmanager
    def _slice(self) -> Iterator[int]:
        """How many ticks fill a slice; learns what one takes."""
        ticks, began = max(1, int(_SLICE_S / self._tick_s)), self._clock()
        yield ticks
        took_s = max(_FASTEST_S, (self._clock() - began) / ticks)
        self._tick_s += 0.2 * (took_s - self._tick_s)

    def _do(self, player: AnyPlayer, job: _Job) -> None:
        if job.coming.cancelled():
            return
        try:
            if job.place is not None:
                player.seek(job.place)
            if job.of_past and player.known < 1.0 and not self._surveyed:
                self._look_ahead(player)
                self._jobs.append(job)
                return
            found = job.work(player)
        except Cancelled:
            job.coming.cancel()
            raise
        except Exception as error:  # noqa: BLE001 a named border: who requested it gets it
            if job.coming.set_running_or_notify_cancel():
                job.coming.set_exception(error)
            return
        if job.coming.set_running_or_notify_cancel():
            job.coming.set_result(found)

    def _look_ahead(self, player: AnyPlayer) -> None:
        with self._slice() as ticks:
            self._surveyed = not player.look_ahead(ticks)
        self.read = 1.0 if self._surveyed else player.looked

    def _refresh(self, player: AnyPlayer) -> None:
        """See what was recorded since; a border: what cannot be read now is tried again later."""
        now = self._clock()
        if now < self._refresh_at or (self._publish is None and not self._jobs):
            return
        try:
            if player.refresh():
                self._surveyed, self._is_behind = False, True
        except (OSError, RecordingError) as error:
            self.failure = str(error)
        else:
            self.failure = None
        self._refresh_at = now + max(_REFRESH_S, (self._clock() - now) * _PATIENCE)

    def _is_end_due(self) -> bool:
        return self._publish is not None and (
            self.frame is None or self._is_behind or bool(self._missing(self.frame))
        )

    def _missing(self, frame: Frame) -> set[tuple[str, View]]:
        """What is watched and not in a frame; of runs that are in it."""
        with self._changed:
            views = tuple(self._views)
        wanted = {(run_id or frame.newest, view) for run_id, view in views}
        known = {run_id for run_id, _ in frame.snapshots}
        missing = {(run_id, view) for run_id, view in wanted if run_id is not None and run_id in known}
        return missing - frame.snapshots.keys() - self._in_vain

    def _show_end(self, player: AnyPlayer) -> None:
        """The end with all views that are watched; one that is shown already stays the same object."""
        before = self.frame
        player.seek(player.last)
        frame = before
        if frame is None or self._is_behind:
            frame = player.frame
            self._in_vain.clear()
            self._is_behind = False
        more: dict[tuple[str, View], Snapshot] = {}
        for run_id, view in self._missing(frame):
            found = player.look(run_id, view)
            if found is None:
                self._in_vain.add((run_id, view))
            else:
                more[run_id, view] = found
        with self._changed:
            views = {view for _, view in self._views} | {DEFAULT_VIEW}
        kept = {key: one for key, one in frame.snapshots.items() if key[1] in views}
        self.frame = replace(frame, snapshots={**kept, **more})
        if self._publish is not None:
            self._publish(self.frame)

    def _line(self, player: AnyPlayer, run_id: str | None) -> Timeline | None:
        survey = player.survey
        runs = dict.fromkeys((*survey.runs, *(found for found, _ in player.frame.snapshots)))
        newest = self.frame.newest if self.frame is not None else next(reversed(runs), None)
        wanted = newest if run_id is None else run_id
        is_known = self.frame is not None or self._surveyed
        if is_known and wanted not in runs:
            return None
        return Timeline(
            run_id=wanted or "",
            first=player.first / _NS,
            last=player.last / _NS,
            live=False,
            past=True,
            read=self.read,
            marks=tuple(_mark(mark) for mark in survey.marks(wanted)),
        )


def _place(at: float | None) -> int:
    """The tick that a time is of: in seconds a tick may be a little less than it is."""
    return _END if at is None else round(at * _NS / FAST_NS) * FAST_NS


def _mark(mark: Mark) -> TimelineMark:
    code, _, rest = mark.finding.partition(":")
    scope, _, subject = rest.partition(":")
    return TimelineMark(
        place=mark.place,
        since=mark.time,
        severity=mark.severity,
        code=code,
        subject=f"{scope} {subject}" if subject else None,
        message=mark.message,
    )
