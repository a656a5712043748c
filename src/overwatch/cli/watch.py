"""`overwatch tui`: the live screen, a recording, or one snapshot printed."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from overwatch import codec
from overwatch.cli.viewclient import fetch_snapshot, view_url
from overwatch.feeds.baseline import read_baseline
from overwatch.feeds.player import Player
from overwatch.feeds.recording import RecordingError, open_recording
from overwatch.snapshot import Snapshot, View

NO_RUN_YET: Final = 3
"""Exit code of `--once` while there is no run."""
_NOBODY: Final = "the collector is up and has heard of no run"
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to watch: a collector's run, or a recording's."""

    run_id: str | None = None
    connect: tuple[str, ...] = ()
    """View APIs; found by itself without."""
    recording: Path | None = None
    at_s: float | None = None
    """Second of the recording to begin at."""
    baseline: Path | None = None
    """A recording whose throughput the recording's is compared with."""


def source_of(options: Mapping[str, Path | tuple[str, ...] | float | None], run_id: str | None) -> Source:
    """The source that a command line names; options that exclude one another are bad usage."""
    connect, recording, at_s = (options.get(name) for name in ("connect", "recording", "at_s"))
    baseline = options.get("baseline")
    if connect and recording is not None:
        raise click.UsageError("--connect and --replay exclude one another; give one of them")
    if at_s is not None and recording is None:
        raise click.UsageError("--at is a second of a recording; name it with --replay")
    if baseline is not None and recording is None:
        raise click.UsageError("--baseline is for a recording here; a collector takes it when it starts")
    return Source(
        run_id=run_id,
        connect=connect if isinstance(connect, tuple) else (),
        recording=recording if isinstance(recording, Path) else None,
        at_s=None if at_s is None else float(str(at_s)),
        baseline=baseline if isinstance(baseline, Path) else None,
    )


def watch(source: Source, settings_file: Path | None = None) -> int:
    """Show the screen until the user quits. A recording plays; one that begins at a given second waits."""
    need_textual()
    from overwatch.tui import run_replay, run_tui
    from overwatch.tui.settings import SettingsError, read

    try:
        settings = read(settings_file)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    if source.recording is None:
        return run_tui([_address(one) for one in source.connect or (None,)], source.run_id, settings)
    player = _player(source, source.recording)
    player.paused = source.at_s is not None
    return run_replay(player, source.run_id, settings)


def print_once(source: Source, fmt: str) -> int:
    """Print one snapshot as text, JSON or SVG: the latest, or the recording's at its place."""
    snapshot = _recorded(source) if source.recording is not None else _latest(source)
    if snapshot is None:
        where = "the recording has no run at this place" if source.recording else _NOBODY
        click.echo(f"no run yet: {where}", err=True)
        return NO_RUN_YET
    if fmt == "json":
        click.echo(codec.encode(snapshot))
        return 0
    need_textual()
    from overwatch.tui import once

    click.echo(once(snapshot, "svg" if fmt == "svg" else "text"))
    return 0


def _latest(source: Source) -> Snapshot | None:
    if len(source.connect) > 1:
        raise click.UsageError("--once prints one snapshot; give one --connect")
    try:
        return fetch_snapshot(_address(next(iter(source.connect), None)), source.run_id)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _recorded(source: Source) -> Snapshot | None:
    player = _player(source, source.recording or Path())
    if source.at_s is None:
        player.seek(player.last)
    return player.look(source.run_id, View())


def _player(source: Source, path: Path) -> Player:
    """The recording at its place; raises `ClickException` where there is nothing to play."""
    try:
        recording = open_recording(path)
        if source.baseline is not None:
            recording.baseline = read_baseline(source.baseline)
        player = Player(recording)
        player.seek(player.first + int((source.at_s or 0.0) * _NS))
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    return player


def need_textual() -> None:
    """Say how to get the terminal's extra when it is not there."""
    if importlib.util.find_spec("textual") is None:
        raise click.ClickException('the terminal screen needs Textual: pip install "esper-overwatch[tui]"')


def _address(connect: str | None) -> str:
    try:
        return view_url(connect)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
