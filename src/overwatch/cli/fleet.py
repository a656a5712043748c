"""`overwatch fleet`: the runs of many collectors, the worst first.

Owns where collectors are found and how the list is printed; what is in it is `feeds.fleet`. Rules: read-only;
collectors are asked anew for each list, all at once, and none keeps the others waiting beyond the deadline.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from overwatch import discovery
from overwatch.cli.streams import Seconds, format_option, has_terminal, until_unread
from overwatch.cli.watch import BY_SEVERITY, NO_RUN_YET
from overwatch.extras import TUI
from overwatch.feeds.fleet import (
    AWAY,
    COLUMNS,
    EMPTY,
    RIGHT,
    FleetRow,
    cells,
    described,
    fleet_rows,
    matching,
)
from overwatch.feeds.live import address_of, list_runs
from overwatch.projection.filtering import FilterError
from overwatch.regular import read_regular

VIEW_PORT: Final = 4380
"""Of a view API, where an address names none."""
STATUS_AWAY: Final = 15
"""Exit code where a collector did not answer; between those of a warning and of a critical."""
_STATUSES: Final = BY_SEVERITY | {AWAY: STATUS_AWAY}
_EVERY_S: Final = 2.0
"""Between an answer and the next question of the live list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where collectors are found; what changes there is seen by the next list."""

    connect: tuple[str, ...]
    file: Path | None
    names: tuple[str, ...]
    """DNS names, all addresses of which are collectors."""

    def addresses(self) -> tuple[str, ...]:
        """View APIs, each once; raises `ValueError` naming what is no address or cannot be resolved."""
        named = [*self.connect, *(_read(self.file) if self.file else ())]
        found = [address_of(one) for one in named]
        found += [one for name in self.names for one in resolved(name)]
        if not (self.connect or self.file or self.names):
            announced = discovery.read()
            found += [announced.view] if announced is not None and announced.view is not None else []
        if not found:
            raise ValueError(
                "no collector is announced on this machine; name some with --connect, --file or --dns"
            )
        return tuple(dict.fromkeys(found))


def _read(file: Path) -> list[str]:
    """The addresses in a file: lines, or a list in YAML."""
    import yaml

    try:
        found = yaml.safe_load(read_regular(file).decode())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    # Lines without a mark are one text of several words in YAML.
    words = found.split() if isinstance(found, str) else found
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{file} has no list of addresses; write one a line, like ws://10.0.0.7:4380")
    return words


def resolved(name: str) -> list[str]:
    """View APIs at all addresses of a DNS name, `NAME`, `NAME:PORT` or `wss://NAME:PORT`.

    With TLS each is named as DNS names its address, where it does: certificates are for names. Raises
    `ValueError` for what is no name, and where it cannot be resolved.
    """
    parts = urlsplit(name if "://" in name else f"ws://{name}")
    try:
        port = parts.port or VIEW_PORT
    except ValueError as error:
        raise ValueError(f"--dns {name!r} is not a name; write it like overwatch-headless:4380") from error
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.path:
        raise ValueError(f"--dns {name!r} is not a name; write it like overwatch-headless:4380")
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"--dns {parts.hostname} cannot be resolved: {error.strerror}") from error
    hosts = sorted({str(one[4][0]) for one in found})
    if parts.scheme == "wss":
        hosts = [socket.getnameinfo((host, port), 0)[0] for host in hosts]
    return [f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host in hosts]


def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name collectors, as the command's one argument `places`."""

    @click.option("--connect", metavar="ws://HOST:PORT", multiple=True,
                  help="A collector's view API, more than once for several.")  # fmt: skip
    @click.option("--file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
                  help="A file with addresses: one a line, or a list in YAML.")  # fmt: skip
    @click.option("--dns", "names", metavar="NAME[:PORT]", multiple=True,
                  help="A DNS name, as of a headless service: each address is a collector.")  # fmt: skip
    @wraps(command)
    def with_places(
        *, connect: tuple[str, ...], file: Path | None, names: tuple[str, ...], **more: Any
    ) -> None:
        """Call the command with the places that its options name."""
        command(places=Places(connect=connect, file=file, names=names), **more)

    return with_places


@click.command()
@_placed
@click.option("--filter", "filter_text", default="", metavar="TERMS",
              help="Which runs, e.g. 'severity>=warning task=digits'.")  # fmt: skip
@click.option("--timeout", "within_s", type=Seconds(0.1), default=3.0, show_default=True,
              help="Seconds after which a collector that has not answered is away.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the list and end; so too without a terminal.")
@format_option("table", "json", "text")
@click.option("--fail-on", multiple=True, type=click.Choice(list(_STATUSES)),
              help="Exit 10 for a warning, 15 for a collector that is away, 20 for a critical; "
              "the highest of those that are named and there.")  # fmt: skip
def fleet(
    *, places: Places, filter_text: str, within_s: float, once: bool, fmt: str, fail_on: tuple[str, ...]
) -> None:
    """List the runs of many collectors, the worst first.

    Without --connect, --file and --dns it is the collector of this machine. A collector that does not answer
    is listed with the reason. In a terminal the list refreshes in place, and Enter opens a run; with --once,
    --fail-on or another format it is printed. It exits 0, 3 where no collector has a run, or by --fail-on.
    """

    async def fetch() -> list[FleetRow]:
        """List the runs of every address."""
        addresses = await asyncio.to_thread(places.addresses)
        return matching(fleet_rows(addresses, await list_runs(addresses, within_s)), filter_text)

    try:
        matching((), filter_text)
        addresses = places.addresses()
        if once or fail_on or fmt != "table" or not has_terminal() or TUI.missing:
            rows = asyncio.run(fetch())
            with until_unread():
                click.echo("\n".join(_FORMATS[fmt](rows)))
            sys.exit(_status(rows, fail_on))
    except FilterError as error:
        raise click.UsageError(f"--filter: {error}") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    _watch(fetch, addresses)


def _status(rows: Sequence[FleetRow], fail_on: Iterable[str]) -> int:
    """The highest of the statuses that are wanted; a row that its run has left counts for nothing."""
    there = {word for row in rows if row.moved_to is None for word in (row.severity, row.state)}
    failed = max((_STATUSES[word] for word in fail_on if word in there), default=0)
    nothing = all(row.state == EMPTY for row in rows)
    return failed or (NO_RUN_YET if nothing else 0)


def _watch(fetch: Callable[[], Awaitable[list[FleetRow]]], addresses: Sequence[str]) -> None:
    """The live list, and the terminal of each run that is opened from it."""
    from overwatch.tui import run_tui
    from overwatch.tui.fleet import FleetApp

    while (picked := FleetApp(fetch, _EVERY_S).run()) is not None:
        run_tui([picked.collector, *(one for one in addresses if one != picked.collector)], picked.run)


def _as_table(rows: Sequence[FleetRow]) -> Iterator[str]:
    """Columns, as wide as they need to be."""
    lines = [COLUMNS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (
            word.rjust(width) if name in RIGHT else word.ljust(width)
            for name, word, width in zip(COLUMNS, line, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _as_text(rows: Sequence[FleetRow]) -> Iterator[str]:
    """A sentence a row."""
    for row in rows:
        severity = cells(row)[0]
        yield f"{severity} {row.run or 'no run'} at {row.collector}: {described(row)}"


def _as_json(rows: Sequence[FleetRow]) -> Iterator[str]:
    """An object a line."""
    return (msgspec.json.encode(row).decode() for row in rows)


_FORMATS: Final = {"table": _as_table, "json": _as_json, "text": _as_text}
