"""`overwatch backup`: copies of a collector's data folder, and the way back.

Rules: a copy is made while the collector runs, and nothing of it changes. Must not know how copies are made.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from overwatch.cli.configuration import data_option, file_option, placed, sets_option
from overwatch.cli.streams import warn

if TYPE_CHECKING:
    from overwatch.objects.store import Store

_MIB: Final = 1 << 20
_PLACE: Final = click.argument("place")
_NAME: Final = click.option("--backup", "name", metavar="NAME", help="Which backup; the newest without.")


@click.group()
def backup() -> None:
    """Copy the collector's data folder to a folder or an object store, and restore it.

    PLACE is a folder, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix.
    """


@backup.command()
@_PLACE
@file_option
@sets_option
@data_option
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Then remove all but the newest N.")
def make(
    place: str, path: Path | None, sets: tuple[str, ...], *, data: Path | None, keep: int | None
) -> None:
    """Copy journal, checkpoints, recordings and archive as they are at one moment, while it runs.

    Contents that PLACE has already are not written again.
    """
    from overwatch import config as configuration
    from overwatch.backup.place import prune, save
    from overwatch.collector.exporters.otlp_file import OtlpFileConfig

    with _plainly():
        settings = configuration.load(path, placed(path, sets, data, None))
        folder = settings.data_folder.absolute()
        for name, one in settings.every(OtlpFileConfig).items():
            if one.path.absolute().parent != folder:
                warn(f"{one.path} of {name} is not directly below {folder} and is left out")
        store = _store(place)
        saved = save(folder, store, time.time_ns())
        click.echo(
            f"{saved.name}: {saved.files} files, {_mib(saved.bytes)}, of which {_mib(saved.written)} new"
        )
        for gone in prune(store, keep) if keep is not None else ():
            click.echo(f"{gone}: removed")


@backup.command("list")
@_PLACE
def list_(place: str) -> None:
    """Print the backups of a place, the oldest first."""
    from overwatch.backup.manifest import BackupError
    from overwatch.backup.place import names, read

    with _plainly():
        store = _store(place)
        for name in names(store):
            try:
                manifest = read(store, name)[1]
            except BackupError as error:
                click.echo(f"{name}  {error}")
                continue
            moment = datetime.fromtimestamp(manifest.at_ns / 1e9, UTC)
            click.echo(
                f"{name}  {moment:%Y-%m-%d %H:%M:%S} UTC  {len(manifest.files)} files  "
                f"{_mib(manifest.bytes)}  Overwatch {manifest.overwatch}"
            )


@backup.command()
@_PLACE
@_NAME
def verify(place: str, name: str | None) -> None:
    """Read every file of a backup; status 1 where one is missing or damaged."""
    from overwatch.backup.place import read
    from overwatch.backup.place import verify as verified

    with _plainly():
        store = _store(place)
        name, manifest = read(store, name)
        wrong = verified(store, manifest)
    if wrong:
        raise click.ClickException(f"backup {name} is not whole:\n" + "\n".join(wrong))
    click.echo(f"{name}: {len(manifest.files)} files, {_mib(manifest.bytes)}, whole")


@backup.command()
@_PLACE
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_NAME
def restore(place: str, folder: Path, name: str | None) -> None:
    """Write a backup into FOLDER, which must be empty or not there.

    Every file is verified before the first is in its place. Then start a collector with --data FOLDER.
    """
    from overwatch.backup.place import read
    from overwatch.backup.place import restore as restored

    with _plainly():
        store = _store(place)
        name, manifest = read(store, name)
        restored(store, manifest, folder)
    click.echo(f"{name}: {len(manifest.files)} files, {_mib(manifest.bytes)}, restored")
    click.echo(f"  overwatch collect --data {folder}")


def _store(place: str) -> "Store":
    from overwatch.objects.store import open_store

    return open_store(place)


def _mib(count: int) -> str:
    return f"{count / _MIB:,.1f} MiB"


@contextmanager
def _plainly() -> Iterator[None]:
    """What is wrong with a place, a backup or a disk is a line."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
