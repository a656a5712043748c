"""The terminal: `run_tui` for a person who watches, `once` for one frame as text, JSON or SVG.

A renderer shows; it never sorts, sums or judges. Nothing that came from telemetry is parsed as markup.
"""

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from overwatch import codec, discovery
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import AnyPlayer, player_of
from overwatch.feeds.recording import RecordingError
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.tui.commands import key_of, press
from overwatch.tui.comparison import Comparison
from overwatch.tui.context import Context, Frame, freshness, freshness_of
from overwatch.tui.keys import Mode, spelt
from overwatch.tui.panels.small import Waiting
from overwatch.tui.screen import draw, overview
from overwatch.tui.session import Session
from overwatch.tui.settings import Settings
from overwatch.tui.text import Line, clean
from overwatch.tui.theme import Look, svg

if TYPE_CHECKING:
    from overwatch.tui.app import Attended, OverwatchApp

__all__ = ["Known", "PressError", "once", "recording_of", "run_replay", "run_tui", "shot"]

Format = Literal["text", "json", "svg"]


def run_tui(
    urls: Sequence[str],
    run_id: str | None,
    settings: Settings | None = None,
    attended: "Attended | None" = None,
) -> int:
    """Watch a run until the user quits; returns the exit code. `urls` are view APIs, `ws://HOST:PORT`.

    `attended` is a program that was started with the screen: Ctrl-C is passed on to it while it runs.
    Raises `ValueError` for a URL that is no address.
    """
    from overwatch.feeds.live import Live
    from overwatch.tui.app import OverwatchApp

    feed = Live(urls, run_id)
    folder = recording_of(feed.address)
    app = OverwatchApp(feed, feed.address, settings, recorded=folder is not None, attended=attended)
    code = _show(app)
    shown = app.session.snapshot
    if folder is None or shown is None or not app.session.requests.replaying:
        return code
    try:
        player = player_of(open_input(folder))
    except (RecordingError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    player.paused = False
    return run_replay(player, shown.run.run_id, app.session.settings)


def recording_of(address: str) -> Path | None:
    """The folder that the collector with this view API records into, where that is on this machine."""
    announced = discovery.read()
    if announced is None or announced.view is None or announced.recording is None:
        return None
    if discovery.place_of(announced.view) != discovery.place_of(address):
        return None
    folder = Path(announced.recording)
    return folder if folder.is_dir() else None


def run_replay(
    player: AnyPlayer,
    run_id: str | None,
    settings: Settings | None = None,
    beside: Comparison | None = None,
) -> int:
    """Look at a recording until the user quits, beside another where one is given; returns the exit code."""
    from overwatch.feeds.replay import Replay
    from overwatch.tui.app import OverwatchApp
    from overwatch.tui.playback import Deck

    feed = Replay(player, run_id)
    where = str(player.recording.folder)
    app = OverwatchApp(feed, where, settings, Deck(feed))
    app.session.compare_with(beside)
    app.session.ui.notice = first_word(player.recording.remarks())
    first = feed.settled()
    if first is not None:
        app.session.take(first)
    return _show(app)


def first_word(remarks: Sequence[str]) -> str | None:
    """What the screen of a recording shows first of what is not in it; `None` where it is complete."""
    if not remarks:
        return None
    more = f" (and {len(remarks) - 1} more: overwatch replay lists all)" if len(remarks) > 1 else ""
    return clean(remarks[0]) + more


def _show(app: "OverwatchApp") -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        sys.stderr.write(
            "overwatch tui needs a terminal; for one frame use --once --format text, json or svg\n"
        )
        return 2
    code = app.run(mouse=app.session.settings.mouse)
    return app.return_code or 0 if code is None else code


def once(
    snapshot: Snapshot,
    fmt: Format,
    width: int = 120,
    height: int = 40,
    *,
    look: Look | None = None,
    zone: tzinfo | None = None,
) -> str:
    """One frame of the overview, or the snapshot itself as JSON; ends without a newline."""
    if fmt == "json":
        return codec.encode(snapshot).decode()
    ctx = Context(width=width, height=height, fresh=freshness(snapshot.link, 0.0), zone=zone)
    return _written(overview(snapshot, ctx).lines, fmt, width, look or Look())


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a terminal that draws one frame has besides the snapshot."""

    before: Sequence[Snapshot] = ()
    """What it has seen already."""
    beside: Comparison | None = None
    past: Callable[[str, HistoryQuery], History | None] = lambda _run_id, _query: None
    """The past of a run."""
    session: Session | None = None
    """The user at it; a new one if left out."""


def _remember(session: Session, known: Known) -> None:
    """Ask for what charts need; names that come with the first answer may change what that is."""
    for _ in range(2):
        for run_id, query in session.asks():
            found = known.past(run_id, query)
            if found is not None:
                session.remember(found)


def shot(
    query: Callable[[View], Snapshot | None],
    fmt: Format,
    size: tuple[int, int],
    keys: Sequence[str] = (),
    known: Known | None = None,
) -> str | None:
    """One frame after some keys (Textual's names, or what they type), as a terminal of `size` cells shows it.

    `query` gives the snapshot of a view, `None` where there is none. Raises `PressError` for a key that does
    nothing at its place.
    """
    known = known or Known()
    session = known.session or Session()
    session.compare_with(known.beside)
    session.width, session.height = size
    for snapshot in known.before:
        session.take(snapshot)
    zone = UTC if session.settings.clock == "utc" else None
    drawn = Frame(lines=[])
    for key in (None, *keys):
        if key is not None:
            _press(session, key)
        now = query(session.view)
        if now is None:
            return None
        session.take(now)
        _remember(session, known)
        shown = msgspec.structs.replace(now, feed=session.feed)
        context = partial(_context, session, shown, size, zone)
        drawn = draw(session, shown, context, lambda: Waiting(collector="", state=""))
    look = Look.of(session.settings, {"TERM": "xterm-256color"}, "utf8")
    return _written(drawn.lines, fmt, size[0], look)


def _context(session: Session, shown: Snapshot, size: tuple[int, int], zone: tzinfo | None) -> Context:
    playback = session.playback
    return Context(
        width=size[0], height=size[1], fresh=freshness_of(shown, playback), cursor=session.board.cursor,
        ui=session.ui, playback=playback, zone=zone,
    )  # fmt: skip


class PressError(ValueError):
    """A key that does nothing where it is pressed; the message names it, and the place."""


def _press(session: Session, key: str) -> None:
    name, character = spelt(key)
    if session.mode is not Mode.PROMPT and key_of(session, name) is None:
        near = difflib.get_close_matches(
            name, sorted({one for row in session.ui.keys for one in row.names}), 1
        )
        hint = f"did you mean {near[0]}?" if near else "? lists the keys"
        raise PressError(f"{key!r} is no key of the {session.mode.value.lower()}; {hint}")
    press(session, name, character, 0.0)


def _written(lines: list[Line], fmt: Format, width: int, look: Look) -> str:
    if fmt == "svg":
        return svg(lines, width, look)
    return "\n".join("".join(segment.text for segment in look.segments(line)).rstrip() for line in lines)
