"""`overwatch catalog`: what is measured, its other names, what is healthy, what comes from what; registry."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from overwatch.catalog import LIBRARIES, ROWS, Library, Metric, Scope, aliases_of, parse_library
from overwatch.catalog.describe import (
    Stated,
    alias_notes,
    alias_text,
    describe,
    limits_text,
    lookup,
    nearest,
    pairs_of,
    source_text,
    stated_names,
)
from overwatch.catalog.graph import arrows, backwards
from overwatch.catalog.presets import DEFAULT, PRESETS, parse_preset
from overwatch.catalog.records import InEvent, InField, InRow, Place, StruckOut, places
from overwatch.cli.recordings import BadInputError
from overwatch.cli.streams import format_option

_FORMAT = format_option("text", "json")
_WIDTH: Final = 17


def _library(_: click.Context, __: click.Parameter, name: str | None) -> Library | None:
    try:
        return None if name is None else parse_library(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group()
def catalog() -> None:
    """Look up metrics: names, questions, limits, aliases."""


@catalog.command()
@click.argument("name")
@_FORMAT
def show(name: str, fmt: str) -> None:
    """Everything about a metric. NAME: any spelling of it, or the id of a telemetry record."""
    record = name.strip().upper()
    rows, place = lookup(name, ROWS), places(ROWS).get(record)
    if not rows and place is not None:
        found = {"record": record, "lives_in": _words(place)}
        click.echo(_json([found]) if fmt == "json" else "  ".join(found.values()))
        return
    rows = rows or _unknown(name)
    if fmt == "json":
        click.echo(_json([_stated(row) for row in rows]))
        return
    for row in rows:
        for line in _lines(row):
            click.echo(line)


@catalog.command("list")
@click.option("--scope", type=click.Choice([scope.value for scope in Scope]), help="Only of this scope.")
@click.option("--preset", default=DEFAULT, show_default=True, help="Whose limits to print.")
@click.option("--library", callback=_library, help="Only rows that this library fills, with its names.")
@click.option("--judged", is_flag=True, help="Only what the preset has limits for.")
@_FORMAT
def list_(preset: str, fmt: str, scope: str | None, library: Library | None, *, judged: bool) -> None:
    """All metrics with their limits, one a line."""
    try:
        parse_preset(preset)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--preset") from error
    rows = [row for row in ROWS if scope is None or row.scope.value == scope]
    rows = [row for row in rows if library is None or _aliases(row, library)]
    rows = [row for row in rows if not judged or limits_text(row.limits_for(preset))]
    if fmt == "json":
        click.echo(_json([describe(row) for row in rows]))
        return
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        notes = [limits_text(row.limits_for(preset)), *(_aliases(row, library) if library else ())]
        click.echo(f"{row.name:{width}}  {row.unit:10}  {'; '.join(note for note in notes if note)}".rstrip())
    click.echo(f"{len(rows)} metrics, limits of preset {preset} ({PRESETS[preset]})")


@catalog.command()
@click.argument("library", callback=_library)
@_FORMAT
def aliases(library: Library, fmt: str) -> None:
    """What a library calls the metrics. LIBRARY: its name, e.g. `sb3`, `TRL`, `sample-factory`."""
    names = next(names for names in LIBRARIES if names.library is library)
    if fmt == "json":
        click.echo(_json(stated_names(names)))
        return
    rows = [(alias.name, short, ", ".join(alias_notes(alias))) for short, alias in pairs_of(names)]
    widths = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    click.echo(source_text(names))
    for name, short, notes in rows:
        click.echo(f"  {name:{widths[0]}}  {short:{widths[1]}}  {notes}".rstrip())
    if names.left:
        click.echo("custom numbers, though they look like a metric:")
        width = max(map(len, names.left))
        for name, reason in names.left.items():
            click.echo(f"  {name:{width}}  {reason}")


def _json(found: object) -> str:
    return json.dumps(found, ensure_ascii=False, indent=2)


def _unknown(name: str) -> tuple[Metric, ...]:
    near = nearest(name, ROWS)
    hint = f"did you mean {', '.join(near)}?" if near else "`overwatch catalog list` names them all"
    raise click.ClickException(f"no metric is called {name!r}; {hint}")


def _stated(row: Metric) -> dict[str, Stated]:
    """All about a row, its arrows too."""
    fed = arrows(ROWS)
    sources, ends = backwards(fed).get(row.name, ()), fed.get(row.name, ())
    return describe(row) | {"depends_on": list(sources), "feeds": list(ends)}


def _lines(row: Metric) -> Iterator[str]:
    yield f"{row.name}  {row.asks}"
    for key, value in _stated(row).items():
        if key in ("name", "asks", "limits", "aliases") or not value or value == "none":
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield f"  {key.replace('_', ' '):{_WIDTH}}{text}"
    for preset in PRESETS:
        yield f"  {f'limits {preset}':{_WIDTH + 5}}{limits_text(row.limits_for(preset)) or 'none'}"
    for alias in aliases_of(row):
        yield f"  {alias.library.value:{_WIDTH}}{alias_text(alias)}"


def _words(place: Place) -> str:
    match place:
        case InRow():
            return f"row {place.name}"
        case InEvent():
            return f"{place.what}: field `{place.field}` of event `{place.tag}`"
        case InField():
            return f"{place.what}: `{place.path}` of the snapshot"
        case StruckOut():
            return f"{place.what}: struck out, {place.why}"


def _aliases(row: Metric, library: Library) -> list[str]:
    return [alias_text(one) for one in aliases_of(row) if one.library is library]


@catalog.group("registry")
def registry_group() -> None:
    """The names that are emitted, as semantic conventions."""


@registry_group.command("write")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def write_(folder: Path) -> None:
    """Write this version's registry into FOLDER, as Weaver reads it."""
    from overwatch.generate.registry import FILES

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in FILES.items():
            (folder / Path(path).name).write_text(text(), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{error.filename or folder}: {error.strerror or error}") from error
    click.echo(f"{len(FILES)} files are in {folder}")
