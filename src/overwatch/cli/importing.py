"""The writing of `overwatch import`: finished files as a recording, with their own times.

Rules: what cannot be read is printed and ends nothing; a recording is there whole or not at all.
"""

import heapq
import shutil
import time
from pathlib import Path
from typing import Any

import click

from overwatch.cli.following import wanted_of
from overwatch.cli.recordings import BadInputError
from overwatch.cli.simulate import PART
from overwatch.cli.streams import warn
from overwatch.follow.output import Recorder
from overwatch.follow.readers import READERS
from overwatch.follow.watched import Watched
from overwatch.simulate.delivery import Reported


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
    requests = [list(run.read_whole()) for run in runs]
    for run in runs:
        for line in run.remarks():
            warn(line)
    if not any(requests):
        raise BadInputError(_nothing(path))
    part = out / PART
    shutil.rmtree(part, ignore_errors=True)
    try:
        _record(part, requests)
        (part / "otlp").replace(out / "otlp")
    except OSError as error:
        raise click.ClickException(f"--out {out} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for run in runs:
        click.echo(run.outline())
    click.echo(f"  overwatch tui {out}")


def _record(out: Path, requests: list[list[Reported]]) -> None:
    merged = heapq.merge(*requests, key=lambda one: one.at)
    first = next(merged)
    recorder = Recorder(out, first.at)
    try:
        recorder.put(first)
        for reported in merged:
            recorder.put(reported)
    finally:
        recorder.close()


def _nothing(path: Path) -> str:
    kinds = ", ".join(name for one in READERS for name in one.files)
    return f"{path} has no rows that can be read; in a folder {kinds} are looked for, text needs --pattern"
