"""The terminal application: follows a feed, paints frames, moves the cursor.

Owns time (how long nothing has arrived, how long painting takes) and nothing else: what is drawn is made by
`screens`, what keys do stands in `keys`. Paints at most ten times a second, and once a second for the ages.
"""

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import ClassVar, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.geometry import Size
from textual.timer import Timer

from overwatch import discovery
from overwatch.feeds.live import Connection, Update
from overwatch.snapshot import Snapshot, Timing
from overwatch.tui.canvas import Canvas
from overwatch.tui.context import Context, Freshness, freshness
from overwatch.tui.keys import KEYS
from overwatch.tui.panels import help as help_panel
from overwatch.tui.panels import welcome
from overwatch.tui.screens import overview
from overwatch.tui.screens.overview import Frame
from overwatch.tui.theme import Look

FRAME_S: Final = 0.1
_PAINTS: Final = 100
"""Paints that the mean is taken over."""
_OTLP_PORT: Final = 4318


class Feed(Protocol):
    """Where snapshots come from."""

    run_id: str | None
    connection: Connection

    @property
    def age_s(self) -> float | None:
        """Seconds since the last snapshot arrived."""

    def updates(self) -> AsyncGenerator[Update, None]:
        """Snapshots and changes of the connection; never raises."""


class OverwatchApp(App[int]):
    """`overwatch tui`."""

    CSS = "Screen { background: ansi_default; overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [Binding(key.keys, key.action, key.does, show=False, priority=True) for key in KEYS]

    def __init__(self, feed: Feed, address: str, look: Look | None = None) -> None:
        super().__init__(ansi_color=True)
        self._feed = feed
        self._address = address
        self.canvas = Canvas(look or Look())
        self._area = Size(0, 0)
        self._snapshot: Snapshot | None = None
        self._cursor: int | None = None
        self._place = 0
        self._walk: tuple[int, ...] = ()
        self._helping = False
        self._painted_at = 0.0
        self._pending: Timer | None = None
        self._paint_ms: deque[float] = deque(maxlen=_PAINTS)

    def compose(self) -> ComposeResult:
        """The screen is one canvas."""
        yield self.canvas

    def on_mount(self) -> None:
        """Start following, and leave the terminal in order whoever ends us."""
        self.set_interval(1.0, self._every_second)
        self.run_worker(self._follow(), exit_on_error=True)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                with suppress(NotImplementedError):
                    loop.add_signal_handler(number, self.exit, 128 + number)

    def on_resize(self, event: Resize) -> None:
        """A terminal of another size gets a whole new frame at once."""
        self._area = event.size
        self.paint()

    async def _follow(self) -> None:
        async with aclosing(self._feed.updates()) as updates:
            async for update in updates:
                if isinstance(update, Snapshot):
                    self._snapshot = update
                self._paint_soon()

    def _every_second(self) -> None:
        if not self.is_headless and not _terminal_is_there():
            self.exit(128 + signal.SIGHUP)
            return
        self.paint()

    def _paint_soon(self) -> None:
        if self._pending is not None:
            return
        wait_s = max(0.0, self._painted_at + FRAME_S - time.monotonic())
        self._pending = self.set_timer(wait_s, self._paint_pending)

    def _paint_pending(self) -> None:
        self._pending = None
        self.paint()

    def paint(self) -> None:
        """Draw what is known now, and note how long it took."""
        begun = time.perf_counter()
        self._painted_at = time.monotonic()
        width, height = self._area
        if width < 1 or height < 1:
            return
        frame = self.frame(width, height)
        self._walk = frame.walk
        if self._cursor in frame.walk:
            self._place = frame.walk.index(self._cursor)
        elif self._cursor is not None and frame.walk and not self._helping:
            self._place = min(self._place, len(frame.walk) - 1)
            self._cursor = frame.walk[self._place]
            frame = self.frame(width, height)
        self.canvas.show(frame.lines)
        self._paint_ms.append((time.perf_counter() - begun) * 1e3)

    def frame(self, width: int, height: int) -> Frame:
        """The frame of this moment at this size."""
        waited_s = self._feed.age_s or 0.0
        snapshot = self._snapshot
        connected = self._feed.connection.state == "up"
        fresh = Freshness(state="live", age_s=None)
        if snapshot is not None:
            fresh = freshness(snapshot.link, waited_s, connected=connected)
        ctx = Context(width=width, height=height, fresh=fresh, waited_s=waited_s, cursor=self._cursor)
        if self._helping:
            return Frame(lines=help_panel.render(snapshot, ctx), walk=self._walk)
        if snapshot is None:
            return Frame(lines=welcome.render(self._waiting(), ctx))
        timed = msgspec.structs.replace(snapshot, timing=self._timing())
        return overview.render(timed, ctx)

    def _timing(self) -> Timing | None:
        if not self._paint_ms:
            return None
        mean = sum(self._paint_ms) / len(self._paint_ms)
        return Timing(last_render_ms=self._paint_ms[-1], mean_render_ms=mean)

    def _waiting(self) -> welcome.Waiting:
        connection = self._feed.connection
        where = urlsplit(self._address)
        announced = discovery.read()
        endpoint = f"http://{where.hostname}:{_OTLP_PORT}"
        if (
            announced
            and announced.otlp_http
            and announced.view
            and urlsplit(announced.view).netloc == where.netloc
        ):
            endpoint = announced.otlp_http
        state = f"down: {connection.reason}" if connection.reason else connection.state
        return welcome.Waiting(
            collector=where.netloc, state=state, endpoint=endpoint, run_id=self._feed.run_id
        )

    def action_move(self, step: int) -> None:
        """The cursor to the next or previous env of the board."""
        if not self._walk or self._helping:
            return
        if self._cursor is None:
            self._place = 0
        self._place = min(max(0, self._place + step), len(self._walk) - 1)
        self._cursor = self._walk[self._place]
        self.paint()

    def action_home(self) -> None:
        """The cursor on the worst env, whichever that is."""
        self._cursor, self._place, self._helping = None, 0, False
        self.paint()

    def action_help(self) -> None:
        """Show the help page, or close it."""
        self._helping = not self._helping
        self.paint()

    def action_close_help(self) -> None:
        """Close what is open."""
        self._helping = False
        self.paint()

    def action_leave(self) -> None:
        """Quit with success."""
        self.exit(0)


def _terminal_is_there() -> bool:
    """Whether the terminal that we write to still exists."""
    stream = sys.__stdin__
    return stream is not None and not stream.closed and stream.isatty()
