"""What every command prints of an error: text that steers no terminal, whatever an argument or a file holds.

Must not know the commands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from overwatch.cli import interrupts
from overwatch.cli.streams import ensure, until_unread


class Commands(click.Group):
    """A group whose commands' errors are safe to print, and whose standard streams are open.

    Ctrl-C is status 130 without a word, and a reader that ended, as in `| head`, is no error.
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
