"""A recording as a feed: snapshots of the place where it stands, moved by play, step and seek.

Owns real time while playing and the alarms met so far. All work on the recording happens in one worker
thread at a time, so that a long seek leaves the screen alive. Must not know who shows the snapshots.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from overwatch.feeds.live import Connection, Update
from overwatch.feeds.player import Player
from overwatch.feeds.towers import AckError, Listed
from overwatch.projection.runs import run_list
from overwatch.snapshot import Snapshot, View

TICK_S: Final = 0.1
_NS: Final = 1_000_000_000
_ALARMS: Final = ("warning", "critical")


class Replay:
    """Snapshots of one run of a recording; `run_id` of `None` follows the newest run at each moment."""

    def __init__(
        self,
        player: Player,
        run_id: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id = run_id
        self.connection = Connection(state="up")
        self.view = View()
        self.marks: dict[str, tuple[float, str]] = {}
        """Time and severity of every alarm met so far, by finding and moment."""
        self.busy = False
        """A step or seek is under way."""
        self._player = player
        self._clock = clock
        self._wanted: list[Callable[[], object]] = []
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

    def go(self, listed: Listed) -> None:
        """Show another run of the recording."""
        if listed.run is not None:
            self.run_id = listed.run.run_id
            self._wake.set()

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Nothing can be said to a recording: raises `AckError`."""
        raise AckError(f"{finding_id} of {run_id} is recorded; only a live finding can be acknowledged")

    def play(self, *, playing: bool) -> None:
        """Play on, from the start when at the end; or pause."""
        if playing and self._player.position >= self._player.last:
            self._ask(lambda: self._player.seek(self._player.first))
        self._player.paused = not playing
        self._wake.set()

    def set_speed(self, speed: float) -> None:
        """Recording seconds a second; raises `ValueError` for one that is not above 0."""
        if not speed > 0:
            raise ValueError(f"speed {speed} does not play; use more than 0")
        self._player.speed = speed
        self._wake.set()

    def step(self, by: int) -> None:
        """So many recorded seconds on, or back; pauses."""
        self._player.paused = True
        self._ask(lambda: self._player.step(by))

    def seek(self, time: float) -> None:
        """Go to a Unix time."""
        self._ask(lambda: self._player.seek(int(time * _NS)))

    def _ask(self, action: Callable[[], object]) -> None:
        self._wanted.append(action)
        self.busy = True
        self._wake.set()

    async def updates(self) -> AsyncGenerator[Update, None]:
        """The snapshot of every place on the way, until the caller stops; never raises."""
        last = self._clock()
        while True:
            self._wake.clear()
            wanted, self._wanted = self._wanted, []
            elapsed_s, last = self._clock() - last, self._clock()
            snapshot = await asyncio.to_thread(self._move, wanted, elapsed_s)
            self.busy = bool(self._wanted)
            yield self.connection if snapshot is None else snapshot
            await self._rest()
            if not self.playing:
                last = self._clock()

    async def _rest(self) -> None:
        """Until something is asked for, or while playing until the next tick."""
        if self._wake.is_set():
            return
        try:
            async with asyncio.timeout(TICK_S if self.playing else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _move(self, wanted: list[Callable[[], object]], elapsed_s: float) -> Snapshot | None:
        """In the worker thread: do what was asked for, else play on."""
        for action in wanted:
            action()
        if not wanted and self.playing:
            self._player.advance(int(elapsed_s * _NS))
        snapshot = self._player.look(self.run_id, self.view)
        if snapshot is not None:
            for finding in snapshot.findings:
                if finding.severity in _ALARMS:
                    self.marks[f"{finding.id} {finding.since}"] = finding.since, finding.severity
        return snapshot
