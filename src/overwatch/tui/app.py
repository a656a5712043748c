"""The terminal application: follows a feed, hands keys to the session, paints frames.

Owns time (how long nothing has arrived, how long painting takes) and nothing else: what is drawn is made by
`screen`, what keys do is decided by `session`. Paints at most ten times a second, once a second for ages.
"""

import asyncio
import gc
import locale
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.timer import Timer
from textual.worker import Worker

from overwatch import discovery
from overwatch.feeds.live import AckError, Connection, Listed, Live, Update
from overwatch.output import write_output
from overwatch.snapshot import Snapshot, Timing, View
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.tui.commands import click, paste, press, wheel
from overwatch.tui.context import Context, Frame, Freshness, Page, freshness_of
from overwatch.tui.keys import Mode
from overwatch.tui.panels.small import Waiting
from overwatch.tui.playback import Transport
from overwatch.tui.screen import copied, draw
from overwatch.tui.session import Session
from overwatch.tui.settings import Settings
from overwatch.tui.terminal import Canvas, ClickDriver
from overwatch.tui.theme import Look, svg

FRAME_S: Final = 0.1
SELECT_S: Final = 0.12
"""A view that changes with every key is asked for only when keys rest for so long."""
_PAINTS: Final = 100
"""Paints that the mean is taken over."""
_OTLP_PORT: Final = 4318


class Stream(Protocol):
    """Where snapshots come from."""

    @property
    def run_id(self) -> str | None:
        """The run that was asked for; `None` follows the newest."""

    @property
    def connection(self) -> Connection:
        """How this end is connected."""

    @property
    def age_s(self) -> float | None:
        """Seconds since the last snapshot arrived."""

    def updates(self) -> AsyncGenerator[Update, None]:
        """Snapshots and changes of the connection; never raises."""

    def select(self, view: View) -> None:
        """Send snapshots of this view from now on."""


class Desk(Protocol):
    """Who knows all runs and takes acknowledgements."""

    async def runs(self) -> tuple[Listed, ...]:
        """All runs that can be watched; never raises."""

    def go(self, listed: Listed) -> None:
        """Send snapshots of another run from now on."""

    async def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """The past of a run, `None` being the watched one; never raises."""

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Acknowledge a finding; raises `AckError`."""


class Attended(Protocol):
    """A program that was started with this screen, and goes on without it."""

    @property
    def ended(self) -> str | None:
        """How it ended; `None` while it runs."""

    def interrupt(self) -> str:
        """Pass Ctrl-C on to it; what came of that."""

    def new_lines(self) -> list[str]:
        """What it has printed since the last call."""


class Feed(Stream, Desk, Protocol):
    """Both."""


class OverwatchApp(App[int]):
    """`overwatch tui`; with a transport, of a recording."""

    CSS = "Screen { background: ansi_default; overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        feed: Feed,
        address: str,
        settings: Settings | None = None,
        transport: Transport | None = None,
        *,
        recorded: bool = False,
        attended: Attended | None = None,
    ) -> None:
        super().__init__(ansi_color=True, driver_class=ClickDriver)
        self._attended = attended
        self._feed = feed
        self._address = address
        self.session = Session(transport, settings)
        self.canvas = Canvas(self._look)
        self.session.ui.recorded = recorded
        self._area = Size(0, 0)
        self._frame = Frame(lines=[])
        self._selected = View()
        self._painted_at = 0.0
        self._pending: asyncio.TimerHandle | None = None
        self._selecting: Timer | None = None
        self._requesting_past = False
        self._requested_past: object = None
        """What the past was asked for last."""
        self._paint_ms: deque[float] = deque(maxlen=_PAINTS)

    @property
    def _look(self) -> Look:
        return Look.of(self.session.settings, os.environ, locale.getencoding())

    def compose(self) -> ComposeResult:
        """The screen is one canvas."""
        yield self.canvas

    def on_mount(self) -> None:
        """Start following, and leave the terminal in order however it ends."""
        self.set_interval(1.0, self._every_second)
        self._list_soon()
        _: Worker[None] = self.run_worker(self._follow, exit_on_error=True)
        if not self.is_headless:
            gc.freeze()  # what start-up made lives as long as we do; to search it would hold up a frame
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                with suppress(NotImplementedError):
                    loop.add_signal_handler(number, self.exit, 128 + number)

    def on_resize(self, event: events.Resize) -> None:
        """A terminal of another size gets a whole new frame at once."""
        self._area = event.size
        self.session.width, self.session.height = event.size
        self._select_soon()
        self.paint()

    async def on_event(self, event: events.Event) -> None:
        """Keys, pasted text and the mouse go to the session, before Textual finds a use for them."""
        if isinstance(event, events.Key):
            self._press(event)
        elif isinstance(event, events.Paste):
            paste(self.session, event.text)
        elif isinstance(event, events.MouseDown):
            click(self.session, self._frame.target(event.x, event.y), time.monotonic())
        elif isinstance(event, events.MouseScrollDown | events.MouseScrollUp):
            down = 1 if isinstance(event, events.MouseScrollDown) else -1
            beyond = self._frame.beyond(event.x)
            wheel(self.session, down, time.monotonic(), drawer=beyond)
        elif isinstance(event, events.MouseEvent):
            return
        else:
            await super().on_event(event)
            return
        if self.session.requests.leaving:
            is_interrupt = isinstance(event, events.Key) and event.key == "ctrl+c"
            self.exit(128 + signal.SIGINT if is_interrupt else 0)
            return
        self._do_requests()
        self._request_past()
        self._select_soon()
        self.paint()

    def _press(self, event: events.Key) -> None:
        """Ctrl-C is for the program that runs beside, for as long as it does; the rest is the session's."""
        attended = self._attended
        if event.key == "ctrl+c" and attended is not None and attended.ended is None:
            self.session.ui.notice = attended.interrupt()
        else:
            press(self.session, event.key, event.character, time.monotonic())

    def _do_requests(self) -> None:
        """Do what the session cannot do by itself: go to another run, acknowledge, ask for the runs."""
        session, requests = self.session, self.session.requests
        if isinstance(self._driver, ClickDriver):
            self._driver.report_mouse(on=session.settings.mouse)
        if requests.going is not None:
            self._feed.go(requests.going)
            requests.going = None
        if requests.acknowledging is not None and session.snapshot is not None:
            self.run_worker(self._acknowledge(requests.acknowledging, session.snapshot.run.run_id))
            requests.acknowledging = None
        if requests.suspending:
            requests.suspending = False
            self.action_suspend_process()
        if requests.copying:
            requests.copying = False
            self._copy()
        if requests.saving is not None:
            file, requests.saving = requests.saving, None
            session.ui.notice = self._save(file)
        if session.ui.page is Page.RUNS:
            self._list_soon()

    def _copy(self) -> None:
        """Ask the terminal to take what is open, or the row under the cursor, into the clipboard."""
        shown = self._showable()
        if shown is not None:
            text = copied(shown, self._seen_with(*self._area, shown))
            self.copy_to_clipboard(text)
            self.session.ui.notice = (
                f"copied {len(text.splitlines())} lines, if this terminal lets us (OSC 52)"
            )

    def _save(self, file: str) -> str:
        """Write the screen as SVG; returns the notice."""
        shown = self._showable()
        run_id = "nothing" if shown is None else shown.run.run_id
        plain = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in run_id)[:64]
        path = Path(f"overwatch-{plain}-{time.strftime('%H%M%S')}.svg" if file == "auto" else file)
        path = path.expanduser()
        try:
            write_output(path, svg(self.canvas.lines, self._area.width, self._look).encode())
        except OSError as error:
            return str(error)
        return f"written: {path.absolute()}"

    def _list_soon(self) -> None:
        # A function: what is replaced before it began must not be a coroutine that was never awaited.
        _: Worker[None] = self.run_worker(self._list, group="runs", exclusive=True)

    async def _list(self) -> None:
        self.session.ui.runs = await self._feed.runs()
        if self.session.ui.page is Page.RUNS:
            self._paint_soon()

    async def _acknowledge(self, finding_id: str, run_id: str) -> None:
        try:
            await self._feed.acknowledge(finding_id, run_id)
        except AckError as error:
            self.session.ui.notice = str(error)
        else:
            self.session.ui.notice = "acknowledged"
        self._paint_soon()

    def _request_past(self) -> None:
        """Ask for what charts need, once a second or where the user wants something else."""
        shown, asks = self.session.snapshot, self.session.asks()
        if shown is None or not asks:
            return
        playback = self.session.playback
        wanted = (int(shown.time), 1.0 if playback is None else round(playback.known, 2), asks)
        if wanted != self._requested_past and not self._requesting_past:
            self._requested_past, self._requesting_past = wanted, True
            _: Worker[None] = self.run_worker(partial(self._take_past, asks), group="past")

    async def _take_past(self, asks: list[tuple[str, HistoryQuery]]) -> None:
        try:
            for run_id, query in asks:
                found = await self._feed.history(run_id, query)
                if found is not None:
                    self.session.remember(found)
                    self._paint_soon()
        finally:
            self._requesting_past = False
        self._request_past()  # the user may have wanted something else since

    def _select_soon(self) -> None:
        """Ask for the view that the session needs; typing asks when it rests."""
        if self._selecting is not None:
            self._selecting.stop()
            self._selecting = None
        if self.session.view == self._selected:
            return
        if self.session.mode is Mode.PROMPT:
            self._selecting = self.set_timer(SELECT_S, self._select)
        else:
            self._select()

    def _select(self) -> None:
        self._selecting = None
        self._selected = self.session.view
        self._feed.select(self._selected)

    async def _follow(self) -> None:
        self._select_soon()
        async with aclosing(self._feed.updates()) as updates:
            async for update in updates:
                if isinstance(update, Snapshot):
                    self.session.take(update)
                    self._request_past()
                elif update.state == "up" and update.reason is not None:
                    self.session.ui.notice = update.reason
                self._paint_soon()

    def _every_second(self) -> None:
        if not self.is_headless and not _terminal_is_there():
            self.exit(128 + signal.SIGHUP)
            return
        if not self.is_headless and Size(*shutil.get_terminal_size()) != self._area:
            # Of signals that come one within the other, Textual handles the older size last.
            signal.raise_signal(signal.SIGWINCH)
        if self.session.ui.page is Page.RUNS:
            self._list_soon()
        if self._attended is not None:
            self.session.print(self._attended.new_lines(), time.time())
            if self._attended.ended is not None:
                self.session.ui.notice = f"{self._attended.ended} · q leaves"
        self._request_past()  # more of it may have been read since
        self.paint()

    def _paint_soon(self) -> None:
        if self._pending is not None:
            return
        wait_s = max(0.0, self._painted_at + FRAME_S - time.monotonic())
        self._pending = asyncio.get_running_loop().call_later(wait_s, self.paint)

    def paint(self) -> None:
        """Draw what is known now, and note how long it took."""
        begun = time.perf_counter()
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._painted_at = time.monotonic()
        width, height = self._area
        if width < 1 or height < 1:
            return
        self.canvas.look = self._look
        self._frame = self.frame(width, height)
        self.canvas.show(self._frame.lines)
        self._paint_ms.append((time.perf_counter() - begun) * 1e3)

    def frame(self, width: int, height: int) -> Frame:
        """The frame of this moment at this size."""
        shown = self._showable()
        return draw(self.session, shown, lambda: self._seen_with(width, height, shown), waiting=self._waiting)

    def _showable(self) -> Snapshot | None:
        """The snapshot with what this terminal adds: held order, scrollback, render times."""
        session = self.session
        if session.snapshot is None:
            return None
        held = session.board.hold.apply(session.snapshot, time.monotonic())
        timing = None
        if self._paint_ms:
            mean = sum(self._paint_ms) / len(self._paint_ms)
            timing = Timing(last_render_ms=self._paint_ms[-1], mean_render_ms=mean)
        return msgspec.structs.replace(held, feed=session.feed, timing=timing)

    def _seen_with(self, width: int, height: int, snapshot: Snapshot | None) -> Context:
        session = self.session
        waited_s = 0.0 if session.transport is not None else self._feed.age_s or 0.0
        playback = session.playback
        fresh = Freshness(state="live", age_s=None)
        if snapshot is not None:
            connected = self._feed.connection.state == "up"
            fresh = freshness_of(snapshot, playback, waited_s, connected=connected)
        return Context(
            width=width, height=height, fresh=fresh, waited_s=waited_s, cursor=session.board.cursor,
            playback=playback, ui=session.ui,
            zone=UTC if session.settings.clock == "utc" else None,
        )  # fmt: skip

    def _waiting(self) -> Waiting:
        if self.session.transport is not None:
            state = "has no run at this place"
            return Waiting(collector=self._address, state=state, run_id=self._feed.run_id)
        connection = self._feed.connection
        where = urlsplit(self._address)
        announced = discovery.read()
        endpoint = f"http://{where.hostname}:{_OTLP_PORT}"
        if announced and announced.view and urlsplit(announced.view).netloc == where.netloc:
            endpoint = announced.otlp_http or endpoint
        state = f"down: {connection.reason}" if connection.reason else connection.state
        tried = self._feed.addresses if isinstance(self._feed, Live) else (self._address,)
        return Waiting(
            collector=where.netloc, state=state, endpoint=endpoint, run_id=self._feed.run_id,
            tried=tried if connection.reason else (),
            unannounced=None if announced else str(discovery.path()),
        )  # fmt: skip


def _terminal_is_there() -> bool:
    """Whether the terminal that we write to still exists."""
    stream = sys.__stdin__
    return stream is not None and not stream.closed and stream.isatty()
