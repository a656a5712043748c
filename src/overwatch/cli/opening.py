"""What the commands on whole recordings share: reading stories, saying what is wrong with what was given."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from overwatch.cli.errors import warn
from overwatch.cli.streams import until_unread

if TYPE_CHECKING:
    from overwatch.analyse.story import Story
    from overwatch.feeds.inputs import Input

PATH: Final = click.Path(path_type=Path)
run_option: Final = click.option("--run", "run_id", metavar="ID", help="Which run; the newest without.")


class BadInputError(click.ClickException):
    """What was given cannot be used; status 2, as for bad usage."""

    exit_code = 2


@contextmanager
def saying() -> Iterator[None]:
    """What is wrong with what was given ends the command with one line."""
    from overwatch.analyse.source import AnalyseError
    from overwatch.feeds.recording import RecordingError
    from overwatch.projection.filtering import FilterError

    try:
        yield
    except FilterError as error:
        raise BadInputError(f"{error.term}: {error}") from error
    except (AnalyseError, RecordingError, OSError) as error:
        raise BadInputError(str(error)) from error


def read_stories(path: Path, run_id: str | None, *, every: bool = False, facts: bool = True) -> "list[Story]":
    """The run that is meant, or with `every` all where none is named; says what could not be read."""
    from overwatch.analyse.source import open_source
    from overwatch.analyse.story import one_of, stories

    source = open_source(path)
    with patience(path, source.recorded):
        told = stories(source, run_id, facts=facts)
    for line in source.remarks():
        warn(line)
    if every and run_id is None and told:
        return list(told.values())
    return [one_of(source, told.values(), run_id)]


@contextmanager
def patience(path: Path, recorded: "Input") -> Iterator[None]:
    """Show what is read and how much of it is done, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from overwatch.serve.metrics_text import visible

    shown = f"reading {visible(str(path))} "

    def advanced(part: float) -> None:
        sys.stderr.write(f"\r{shown}{part:4.0%}")
        sys.stderr.flush()

    advanced(0.0)
    recorded.advanced = advanced
    try:
        yield
    finally:
        recorded.advanced = lambda _: None
        sys.stderr.write("\r" + " " * (len(shown) + 4) + "\r")
        sys.stderr.flush()


def write(text: str, out: Path | None) -> None:
    """Print, or write a file whole."""
    if out is None:
        with until_unread():
            click.echo(text)
        return
    from overwatch.analyse.whole import whole

    with saying(), whole(out) as part:
        part.write_text(text + "\n", encoding="utf-8")
