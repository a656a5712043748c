"""A recording as a feed: snapshots of the place where it stands, moved by play, step and seek.

Owns real time while playing and the alarms met so far. All work on the recording happens in one worker
thread at a time, so that a long seek leaves the screen alive. Must not know who shows the snapshots.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from overwatch.feeds.live import AckError, Connection, Listed, Update
from overwatch.feeds.player import AnyPlayer, Cancelled
from overwatch.feeds.recording import RecordingError
from overwatch.feeds.survey import Mark
from overwatch.projection.run import run_list
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Ask, History

TICK_S: Final = 0.1
_NS: Final = 1_000_000_000
_MOVE_S: Final = 0.2
"""One move of playing takes no longer than about this, however fast it is to be."""
_SLICE_S: Final = 0.03
"""Looking ahead takes so long at a time, so that keys are answered at once."""
_REFRESH_S: Final = 1.0
_PATIENCE: Final = 20.0
"""Reading what was added takes at most one part in so many of the time."""
_QUIET_S: Final = 10.0
"""A recording that has not grown for so long is no longer followed."""


class Replay:
    """Snapshots of one run of a recording; `run_id` of `None` follows the newest run at each moment."""

    def __init__(
        self,
        player: AnyPlayer,
        run_id: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id = run_id
        self.connection = Connection(state="up")
        self.view = View()
        self.busy = False
        """A step or seek is under way."""
        self.part = 0.0
        """How much of a step or seek is done, while it takes long."""
        self._cancelling = False
        self._word: str | None = None
        """What is to be known of the last search."""
        player.recording.advanced = self._advance
        self._tick_s = 1e-3
        """What a tick takes, as measured."""
        self.surveyed = False
        """The whole recording was looked through, so that all its alarms are known."""
        self._grown_at = clock()
        self._refresh_at = clock() + _REFRESH_S
        self._player = player
        self._clock = clock
        self._wanted: list[Callable[[], object]] = []
        self._asked: list[tuple[str | None, Ask, asyncio.Future[History | None]]] = []
        """Who waits for the past of a run."""
        self._wake = asyncio.Event()

    @property
    def age_s(self) -> float | None:
        """Nothing grows old in a recording."""
        return 0.0

    @property
    def time(self) -> float:
        """The current place, Unix seconds."""
        return self._player.position / _NS

    @property
    def span(self) -> tuple[float, float]:
        """First and last tick, Unix seconds."""
        return self._player.first / _NS, self._player.last / _NS

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The alarms of the run that is shown, as far as they are known."""
        return self._player.survey.marks(self._shown)

    @property
    def known(self) -> float:
        """Which part of the past of this place was read."""
        return self._player.known

    @property
    def following(self) -> bool:
        """Whether the recording grows."""
        return self._player.follows

    @property
    def _shown(self) -> str | None:
        """The run that is shown; before the first one of the recording, that one as far as it is known."""
        if self.run_id is not None:
            return self.run_id
        return self._player.frame.newest or next(iter(self._player.survey.runs), None)

    def find(self, kind: str, what: str) -> float | None:
        """When an `update` with a number, a `finding` or `event` with words, or an `alarm` is; the next one.

        `None` where there is none in what was looked through so far.
        """
        survey, run_id = self._player.survey, self._shown
        if kind == "update":
            return survey.update(run_id, int(what)) if what.isdecimal() else None
        if kind == "alarm":
            later = (mark.place for mark in survey.marks(run_id) if mark.place > self.time + 0.05)
            return min(later, default=None)
        if kind == "finding":
            return survey.finding(run_id, what, self.time + 0.05)
        return survey.event(run_id, what, self.time + 0.05)

    @property
    def playing(self) -> bool:
        """Whether time goes by."""
        return not self._player.paused

    @property
    def speed(self) -> float:
        """Recording seconds a second."""
        return self._player.speed

    def select(self, view: View) -> None:
        """Show another view of the current place."""
        self.view = view
        self._wake.set()

    async def runs(self) -> tuple[Listed, ...]:
        """The runs at this place."""
        frame, where = self._player.frame, str(self._player.recording.folder)
        told = run_list(frame.snapshots, frame.newest)
        return tuple(Listed(collector=where, run=run) for run in told.runs)

    async def history(self, run_id: str | None, ask: Ask) -> History | None:
        """The past of a run up to this place; `None` where there is no such run."""
        coming: asyncio.Future[History | None] = asyncio.get_running_loop().create_future()
        self._asked.append((self.run_id if run_id is None else run_id, ask, coming))
        self._wake.set()
        return await coming

    def go(self, listed: Listed) -> None:
        """Show another run of the recording."""
        if listed.run is not None:
            self.run_id = listed.run.run_id
            self._wake.set()

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """A recording takes no acknowledgement: raises `AckError`."""
        raise AckError(f"{finding_id} of {run_id} is recorded; only a live finding can be acknowledged")

    def play(self, *, playing: bool) -> None:
        """Play on, from the start when at the end; or pause."""
        if playing and self._player.position >= self._player.last:
            self._ask(lambda: self._player.seek(self._player.first))
        self._player.paused = not playing
        self._wake.set()

    def set_speed(self, speed: float) -> None:
        """Recording seconds a second; raises `ValueError` for one outside of 0.1 to 1000."""
        self._player.speed = speed
        self._wake.set()

    def step(self, by: int) -> None:
        """So many recorded seconds on, or back; pauses."""
        self._player.paused = True
        self._ask(lambda: self._player.step(by))

    def seek(self, time: float) -> None:
        """Go to a Unix time."""
        self._ask(lambda: self._player.seek(int(time * _NS)))

    def search(self, kind: str, what: str) -> None:
        """Go to the next update, finding or event of that name; looks through what was not seen yet."""
        self._ask(lambda: self._search(kind, what))

    def cancel(self) -> None:
        """Give up the step, seek or search that is under way; the place stays what it was."""
        self._wanted.clear()
        self._cancelling = self.busy

    def _search(self, kind: str, what: str) -> None:
        """In the worker thread, until it is found, all was looked through, or it is cancelled."""
        while (found := self.find(kind, what)) is None and not self.surveyed:
            self._advance(self._player.looked)
            self.surveyed = not self._player.look_ahead(max(1, int(_SLICE_S / self._tick_s)))
        if found is None:
            self._word = f"{kind} {what}".rstrip() + " is not in this recording from here"
        else:
            self._player.seek(int(found * _NS))

    def _ask(self, action: Callable[[], object]) -> None:
        self._wanted.append(action)
        self.busy, self.part, self._cancelling = True, 0.0, False
        self._wake.set()

    def _advance(self, part: float) -> None:
        """In the worker thread: raises `Cancelled` where the way there is given up."""
        if self._cancelling:
            self._cancelling = False
            raise Cancelled
        self.part = part

    def settled(self) -> Snapshot | None:
        """Do what was requested; its snapshot; needs no event loop."""
        wanted, self._wanted = self._wanted, []
        snapshot = self._move(wanted, 0.0)
        self.busy = False
        return snapshot

    async def updates(self) -> AsyncGenerator[Update, None]:
        """The snapshot of every place on the way, until the caller stops; never raises."""
        last = self._clock()
        while True:
            self._wake.clear()
            wanted, self._wanted = self._wanted, []
            elapsed_s, last = self._clock() - last, self._clock()
            snapshot = await asyncio.to_thread(self._move, wanted, elapsed_s)
            await self._answer()
            self.busy = bool(self._wanted)
            yield self.connection if snapshot is None else snapshot
            if self._word is not None:
                answer, self._word = self._word, None
                yield Connection(state="up", reason=answer)
            await self._rest()
            if not self.playing:
                last = self._clock()

    async def _rest(self) -> None:
        """Until something is requested, or while playing until the next tick; looks ahead meanwhile."""
        until = self._clock() + TICK_S
        while not self._wake.is_set() and not (self.playing and self._clock() >= until):
            await asyncio.to_thread(self._idle)
            if self._wake.is_set():
                return
            pause_s = TICK_S if self.surveyed else _SLICE_S / 4
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def _answer(self) -> None:
        """Resolve the requests for the past; the worker thread reads it, since nothing else moves then."""
        asked, self._asked = self._asked, []
        for run_id, ask, coming in asked:
            found = await asyncio.to_thread(self._player.history, run_id, ask)
            if not coming.done():
                coming.set_result(found)

    def _idle(self) -> None:
        """In the worker thread, when nothing was requested: see what was added, and look ahead."""
        now = self._clock()
        if now >= self._refresh_at:
            self._refresh(now)
        if not self.surveyed:
            self.surveyed = not self._player.look_ahead(max(1, int(_SLICE_S / self._tick_s)))

    def _refresh(self, now: float) -> None:
        """A border: what cannot be read now is tried again later."""
        try:
            grown = self._player.refresh()
        except (OSError, RecordingError):
            grown = False
        if grown:
            self._grown_at, self.surveyed = now, False
        self._player.follows = now - self._grown_at < _QUIET_S and grown | self._player.follows
        self._refresh_at = now + max(_REFRESH_S, (self._clock() - now) * _PATIENCE)

    def _move(self, wanted: list[Callable[[], object]], elapsed_s: float) -> Snapshot | None:
        """In the worker thread: do what was requested, else play on."""
        with contextlib.suppress(Cancelled):
            for action in wanted:
                action()
        self._cancelling = False
        if not wanted and self.playing:
            self._play_on(int(elapsed_s * _NS))
        return self._player.look(self.run_id, self.view)

    def _play_on(self, elapsed_ns: int) -> None:
        begun, folded = self._clock(), self._player.folded
        self._player.advance(elapsed_ns, max(1, int(_MOVE_S / self._tick_s)))
        ticks = self._player.folded - folded
        if ticks:
            self._tick_s += 0.2 * ((self._clock() - begun) / ticks - self._tick_s)
