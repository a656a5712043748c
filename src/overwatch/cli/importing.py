"""The writing of `overwatch import`: finished files as a recording, with their own times.

Rules: what cannot be read is printed and ends nothing; a recording is there whole or not at all.
"""

import heapq
import shlex
import shutil
import time
from pathlib import Path
from typing import Any, Final

import click

from overwatch.cli.following import wanted_of
from overwatch.cli.recordings import BadInputError
from overwatch.cli.simulate import PART
from overwatch.cli.streams import warn
from overwatch.follow.output import Recorder
from overwatch.follow.readers import READERS
from overwatch.follow.runs import Run
from overwatch.follow.watched import Watched
from overwatch.serve.metrics_text import visible

MANY_TIMES: Final = 5
"""A recording that is larger than what was read by more than this, and..."""
LARGE: Final = 8 << 20
"""...than this, is announced."""


def import_whole(path: Path, out: Path, options: dict[str, Any]) -> None:
    """Write the recording of all runs below a path into a folder that holds none."""
    if (out / "otlp" / "index.jsonl").exists():
        raise click.UsageError(f"--out {out} holds a recording already; name another folder")
    watched = Watched(wanted_of(path, options, is_all=True))
    try:
        watched.scan(time.time_ns())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    runs = list(watched.runs.values())
    part = out / PART
    shutil.rmtree(part, ignore_errors=True)
    try:
        if not _record(part, runs):
            raise BadInputError(_nothing(path))
        (part / "otlp").replace(out / "otlp")
    except OSError as error:
        raise click.ClickException(f"--out {out} cannot be written: {error.strerror or error}") from error
    finally:
        for line in (line for run in runs for line in run.remarks()):
            warn(line)
        shutil.rmtree(part, ignore_errors=True)
        if not any(out.iterdir()) if out.is_dir() else False:
            out.rmdir()
    for run in runs:
        click.echo(visible(run.outline()))
    size, read = _bytes_of(out / "otlp"), sum(file.stat().st_size for run in runs for file in run.paths)
    if size > max(MANY_TIMES * read, LARGE):
        warn(f"the recording has {size >> 20:,} MiB, {size / read:.0f} times the bytes of what was read")
    click.echo(visible(f"  overwatch tui {shlex.quote(str(out))}"))


def _record(out: Path, runs: list[Run]) -> bool:
    """Write what all runs hold, in order of time; whether there was anything."""
    merged = heapq.merge(*(run.read_whole() for run in runs), key=lambda one: one.at)
    first = next(merged, None)
    if first is None:
        return False
    recorder = Recorder(out, first.at)
    try:
        recorder.put(first)
        for reported in merged:
            recorder.put(reported)
    finally:
        recorder.close()
    return True


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _nothing(path: Path) -> str:
    kinds = ", ".join(name for one in READERS for name in one.files)
    return f"{path} has no rows that can be read; in a folder {kinds} are looked for, text needs --pattern"
