"""`overwatch tui`: the live screen, a recording, or one snapshot printed."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from overwatch import codec
from overwatch.cli.recordings import bad_input, patience, read_histories
from overwatch.cli.streams import warn
from overwatch.cli.viewclient import fetch_history, fetch_snapshot, view_url
from overwatch.extras import TUI
from overwatch.feeds.inputs import STDIN, open_input
from overwatch.feeds.player import AnyPlayer, player_of
from overwatch.feeds.recording import Recording, RecordingError
from overwatch.feeds.snapshotlog import read_baseline
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import History, HistoryQuery

if TYPE_CHECKING:
    from overwatch.tui.comparison import Comparison
    from overwatch.tui.session import Session
    from overwatch.tui.settings import Settings

NO_RUN_YET: Final = 3
"""Exit code of `--once` while there is no run."""
_NO_RUN: Final = "the collector is up and has received no run"
_NS: Final = 1_000_000_000
BY_SEVERITY: Final = {"warning": 10, "critical": 20}
"""Exit codes of `--once --exit-code`, apart from those of errors; 0 for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A command line: what to watch, and what a printed frame looks like; what cannot be is bad usage."""

    path: Path | None
    replay: Path | None
    compare: tuple[Path, Path] | None
    """Two recordings; the second is shown beside the first."""
    connect: tuple[str, ...]
    """View APIs; found by itself without."""
    run_id: str | None
    at_s: float | None
    """Second of the recording to begin at."""
    baseline: Path | None
    """A recording whose throughput the recording's is compared with."""
    settings: Path | None
    fmt: Literal["text", "json", "svg"]
    size: str
    """Cells across and down."""
    keys: str
    """Pressed first, by Textual's names."""
    seen: int
    """Seconds of a recording that the screen has seen already, for charts and the heatmap."""
    exit_code: bool
    """The worst severity is the exit code."""
    once: bool

    def __post_init__(self) -> None:
        wrong = {
            "PATH and --replay are the same; give one of them": self.path and self.replay,
            "--compare names both recordings; leave --replay and --connect out": self.compare
            and (self.connect or self.path or self.replay),
            "--connect and --replay exclude one another; give one of them": self.connect and self.recording,
            "--at is a second of a recording; name it with --replay": self.at_s is not None
            and not self.recording,
            "--baseline is for a recording here; a collector takes it when it starts": self.baseline
            and not self.recording,
            f"--size {self.size!r} is no size; write columns and rows, e.g. 120x40": not self.cells,
            "--seen is for a recording; name it with --replay": self.seen and not self.recording,
            "--press is for a frame; JSON is the snapshot itself, so leave one of them out": self.keys.split()
            and self.fmt == "json",
            "--exit-code and --press are for one frame; add --once": not self.once
            and (self.exit_code or self.keys.split()),
        }
        for what in (what for what, is_so in wrong.items() if is_so):
            raise click.UsageError(what)

    @property
    def recording(self) -> Path | None:
        """What is replayed, however it is named; `None` of a collector."""
        return self.compare[0] if self.compare else self.path or self.replay

    @property
    def cells(self) -> tuple[int, int] | None:
        """The size; `None` where it is none."""
        found = re.fullmatch(r"(\d{2,3})x(\d{2,3})", self.size)
        return None if found is None else (int(found[1]), int(found[2]))


def watch(source: Options) -> int:
    """Show the screen until the user quits. A recording plays; one that begins at a given second waits."""
    need_textual()
    from overwatch.tui import run_replay, run_tui

    settings = _settings(source.settings)
    if source.recording is None:
        return run_tui([_address(one) for one in source.connect or (None,)], source.run_id, settings)
    player = _player(source, source.recording)
    if source.recording == STDIN:
        _keys_from_terminal()
    if source.at_s is None:
        player.begin(source.run_id)
    player.paused = source.at_s is not None
    return run_replay(player, source.run_id, settings, _beside(source))


def _settings(file: Path | None) -> "Settings":
    """The user's settings; raises `ClickException` where they cannot be used."""
    from overwatch.tui.settings import SettingsError, read

    try:
        return read(file)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


def print_once(source: Options) -> int:
    """Print one snapshot as text, JSON or SVG: the latest, or the recording's at its place.

    The exit code is 0, or by severity where that is requested.
    """
    if source.fmt != "json":
        need_textual()
    from overwatch.tui import Known, PressError, shot
    from overwatch.tui.session import Session

    settings, before = _settings(source.settings), list[Snapshot]()
    if source.recording is None:
        (query, past), session = _latest(source), Session(None, settings)
    else:
        query, past, session = _recorded(source, settings, before)
    try:
        if source.fmt == "json":
            text = _json(query, session)
        else:
            known = Known(before=before, beside=_beside(source), past=past, session=session)
            text = shot(query, source.fmt, source.cells or (120, 40), tuple(source.keys.split()), known)
    except PressError as error:
        raise click.UsageError(f"--press: {error}") from error
    if text is None or session.snapshot is None:
        where = "the recording has no run at this place" if source.recording else _NO_RUN
        warn(f"no run yet: {where}")
        return NO_RUN_YET
    click.echo(text)
    return BY_SEVERITY.get(session.snapshot.verdict.severity, 0) if source.exit_code else 0


Fetch = Callable[[View], Snapshot | None]
Past = Callable[[str, HistoryQuery], History | None]


def _json(query: Fetch, session: "Session") -> str | None:
    snapshot = query(View())
    if snapshot is None:
        return None
    session.take(snapshot)
    return codec.encode(snapshot).decode()


def _latest(source: Options) -> tuple[Fetch, Past]:
    if len(source.connect) > 1:
        raise click.UsageError("--once prints one snapshot; give one --connect")
    address = _address(next(iter(source.connect), None))

    def query(view: View) -> Snapshot | None:
        try:
            return fetch_snapshot(address, source.run_id, view)
        except ValueError as error:
            raise click.ClickException(str(error)) from error

    return query, lambda run_id, wanted: fetch_history(address, run_id, wanted)


def _recorded(source: Options, settings: "Settings", before: list[Snapshot]) -> "tuple[Fetch, Past, Session]":
    """The recording at its place, its past, and a session; what was seen before goes to `before`."""
    from overwatch.feeds.replay import Replay
    from overwatch.tui.playback import Deck
    from overwatch.tui.session import Session

    player = _player(source, source.recording or Path())
    if source.at_s is None:
        player.seek(player.last)
    place = player.position
    for back in range(source.seen, 0, -1):
        if place - back * _NS >= player.first:
            player.seek(place - back * _NS)
            snapshot = player.look(source.run_id, View())
            before += [] if snapshot is None else [snapshot]
    player.seek(place)
    while player.known < 1.0:
        player.look_ahead(1)
    replay = Replay(player, source.run_id)

    def query(view: View) -> Snapshot | None:
        replay.view = view
        return replay.settled()

    return query, player.history, Session(Deck(replay, still=True), settings)


def _beside(source: Options) -> "Comparison | None":
    """The recording and the other one, compared; raises `BadInputError` where they cannot be."""
    if source.compare is None:
        return None
    from overwatch.tui.comparison import comparison_of

    with bad_input():
        first = read_histories(source.compare[0], source.run_id, facts=False)
        second = read_histories(source.compare[1], None, facts=False)
        return comparison_of(first[0], second[0])


def _player(source: Options, path: Path) -> AnyPlayer:
    """The recording at its place; raises `ClickException` where there is nothing to play."""
    try:
        recording = open_input(path)
        if source.baseline is not None and isinstance(recording, Recording):
            recording.baseline = read_baseline(source.baseline)
        player = player_of(recording)
        with patience(path, recording):
            player.seek(player.first + int((source.at_s or 0.0) * _NS))
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    return player


def _keys_from_terminal() -> None:
    """Take keys from the terminal itself, as standard input was the recording."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise click.ClickException("there is no terminal to take keys from; name a file instead") from error
    os.dup2(terminal, 0)
    os.close(terminal)


def need_textual() -> None:
    """Report how to get the terminal's extra when it is not there."""
    if TUI.missing:
        raise click.ClickException(TUI.need)


def _address(connect: str | None) -> str:
    try:
        return view_url(connect)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
