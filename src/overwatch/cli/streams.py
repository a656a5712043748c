"""The standard streams of a command, and what it prints of an error.

Rules: a stream that is closed, as by `2>&-`, is the null device, so that no file of ours gets its number and
no write to it fails. A pipe whose reader has ended, as in `| head`, becomes the null device too: nothing that
follows is an error. A printed error steers no terminal, whatever an argument or a file holds. Must not know
commands.
"""

import math
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from overwatch.cli import interrupts


def ensure() -> None:
    """Put the null device where a standard stream is closed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115 a number
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def format_option(*formats: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """How a command prints; the first of these without it."""
    return click.option("--format", "fmt", type=click.Choice(formats), default=formats[0], show_default=True)


class Seconds(click.FloatRange):
    """A number of seconds from a least one on, up to thirty years; `nan` is in no range."""

    def __init__(self, least: float) -> None:
        super().__init__(least, 1e9)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it. Fails as any number beyond a range does."""
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not in the range {self.min:g}<=x<={self.max:g}", param, ctx)
        return seconds


def has_terminal() -> bool:
    """Whether input and output are a terminal that can show a screen."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def log_to_stdout_without_stderr() -> None:
    """For commands that write nothing to stdout: a cause goes there where stderr is closed."""
    # The interpreter's own stream has a name; one of `ensure` has a number.
    if sys.stderr.name == 2:
        sys.stderr = sys.stdout


@contextmanager
def until_unread() -> Iterator[None]:
    """Leave this context where a write fails since what reads standard output or error has ended."""
    try:
        yield
    except Exception as error:
        if not _is_of_pipe(error) or not drop_unread():
            raise


def drop_unread() -> bool:
    """Put the null device where the reader of an output has ended; whether there was such a one."""
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    unread = [number for number, event in poll.poll(0) if event & select.POLLERR]
    for number in unread:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
    return bool(unread)


def _is_of_pipe(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__cause__
    return error is not None


class Commands(click.Group):
    """A group whose commands' errors are safe to print, and whose standard streams are open.

    Ctrl-C is status 130 and prints nothing, and a reader that ended, as in `| head`, is no error.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the program that this process is."""
        interrupts.raise_where_it_is_seen()
        try:
            return super().__call__(*args, **kwargs)
        finally:
            interrupts.end_at_once()

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Open them, then run as every group does."""
        ensure()
        return super().main(*args, **kwargs)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the arguments."""
        with _visible_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command."""
        with _visible_errors(), until_unread():
            super().invoke(ctx)


def warn(line: str) -> None:
    """Print a line on standard error."""
    from overwatch.serve.metrics_text import visible

    click.echo(visible(line), err=True)


@contextmanager
def _visible_errors() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        from overwatch.serve.metrics_text import visible

        error.message = visible(error.message)  # type: ignore[misc]  # click reads it from here
        raise
    except KeyboardInterrupt:
        raise SystemExit(interrupts.STATUS) from None
