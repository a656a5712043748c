"""`overwatch web`: a recording in a browser, until Ctrl-C.

Exit codes: 0 ended by SIGTERM, 130 by Ctrl-C, 1 it cannot be served, 2 it cannot be opened.
"""

import signal
import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import click

from overwatch.cli.interrupts import STATUS
from overwatch.cli.recordings import Recorded, bad_input
from overwatch.cli.streams import warn
from overwatch.os_signals import received

if TYPE_CHECKING:
    from overwatch.collector.recording_view import RecordingView
    from overwatch.feeds.inputs import Input

PORT: Final = 4380
_LOOK_S: Final = 0.2


@click.command("web", short_help="Show a recording in a browser.")
@click.argument("path", type=Recorded(exists=True))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Where to listen; beyond this machine readers need a token.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help=f"{PORT}, or the next free one, without.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE",
              help="Serve by TLS: PEM with the certificate, then the chain to its authority.")  # fmt: skip
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE",
              help="PEM with its private key, without a password.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's browser.")
def web(
    path: Path, host: str, port: int | None, tls_cert: Path | None, tls_key: Path | None, *, opens: bool
) -> None:
    """Serve a recording as a page, with all its moments, until Ctrl-C.

    PATH is what `overwatch tui` replays: a folder or a file that otlp_file wrote, also one that still grows,
    OTLP files of any exporter, a journal, a trainer's spool, a snapshots.jsonl, or - for standard input. The
    page of a running collector needs no command: it is at the collector's view address.

    \b
      overwatch web runs/42
      overwatch web runs/42/snapshots.jsonl --port 8080 --open
    """  # noqa: D301
    from overwatch.collector.net import Address, AddressError
    from overwatch.collector.recording_view import RecordingView
    from overwatch.collector.tls import TlsConfig
    from overwatch.feeds.inputs import open_input
    from overwatch.feeds.player import player_of

    with bad_input():
        opened = open_input(path)
    wanted = Address(host=host, port=PORT if port is None else port)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together; give both or none")
    tls = None if tls_cert is None or tls_key is None else TlsConfig(cert_file=tls_cert, key_file=tls_key)
    over: SimpleQueue[int] = SimpleQueue()
    with ExitStack() as ending, received((signal.SIGTERM, signal.SIGINT), over.put):
        try:
            view = RecordingView(lambda: player_of(opened), wanted, may_move=port is None, tls=tls)
        except (OSError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        ending.callback(view.stop)
        try:
            view.start()
        except AddressError as error:
            raise click.ClickException(str(error)) from error
        _announce(path, view)
        if opens:
            webbrowser.open(view.url)
        number = _wait(view, opened, over)
    sys.exit(STATUS if number == signal.SIGINT else 0)


def _announce(path: Path, view: "RecordingView") -> None:
    click.echo(view.url)
    if view.token is not None:
        click.echo(f"token to log in with: {view.token}")
        if not view.url.startswith("https"):
            warn("the page goes over the network in clear; give --tls-cert and --tls-key against listeners")
    if view.moved is not None:
        warn(view.moved)
    warn(f"{path} is served; end it with ctrl-c")


def _wait(view: "RecordingView", opened: "Input", over: "SimpleQueue[int]") -> int:
    """Until a signal comes; raises `ClickException` where the recording has nothing to show."""
    is_reported = False
    while True:
        try:
            return over.get(timeout=_LOOK_S)
        except Empty:
            pass
        if view.shared.frame is None and view.shared.failure is not None:
            raise click.ClickException(view.shared.failure)
        if not is_reported and view.shared.read == 1.0:
            is_reported = True
            for line in opened.remarks():
                warn(line)
