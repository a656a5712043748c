"""`overwatch config`: is it valid, what does it come to, and what can be written in it.

Owns the options by which commands take a configuration. Rules: what is printed holds no secret. Must not know
components; it reads their settings' types.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from overwatch import __version__, discovery
from overwatch.conventions.documented import described

if TYPE_CHECKING:
    from overwatch.collector import CollectorConfig

_SEVERAL: Final = "More of a type, each with settings of its own: `otlp_file/copy`, `webhook/chat`."


def _one(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    """The file that was named; of two the first would be left out silently."""
    if len(paths) > 1:
        raise click.BadParameter("there can be one file; put the keys of the others into it, or use --set")
    return paths[0] if paths else None


file_option: Final = click.option(
    "--config",
    "path",
    multiple=True,
    callback=_one,
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file; defaults without.",
)
sets_option: Final = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override one key, e.g. a.b.c=1."
)
data_option: Final = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for journal, recording and snapshots; as OVERWATCH_DATA_DIR.",
)
_PORTS: Final = (
    "receivers.otlp.protocols.http.endpoint", "receivers.otlp.protocols.grpc.endpoint",
    "exporters.prometheus.endpoint", "extensions.view.endpoint", "service.telemetry.metrics.address",
    "extensions.health_check.endpoint",
)  # fmt: skip
"""From the first port on."""
port_base_option: Final = click.option(
    "--port-base",
    type=click.IntRange(1, 65_520),
    metavar="N",
    help="Ports N to N+5: OTLP/HTTP, OTLP/gRPC, metrics, view, own metrics, health.",
)


def placed(
    path: Path | None, sets: tuple[str, ...], data: Path | None, port_base: int | None
) -> tuple[str, ...]:
    """The settings that a folder and a first port stand for, and over them those of `--set`.

    Every address keeps its host. Raises `ValueError` where the configuration cannot be used.
    """
    from overwatch.collector.net import Address, parse
    from overwatch.collector.settings import listeners
    from overwatch.config import load

    found: list[str] = []
    if data is not None:
        folder = data.absolute()
        places = {
            "exporters.otlp_file.path": folder / "otlp",
            "exporters.snapshots.path": folder / "snapshots.jsonl",
            "extensions.file_storage.directory": folder,
        }
        found += [f"{key}={json.dumps(str(place))}" for key, place in places.items()]
    if port_base is not None:
        requested = {one.path: one for one in listeners(load(path, sets))}
        for port, one in enumerate((requested[key] for key in _PORTS), start=port_base):
            found.append(f"{one.path}={json.dumps(str(Address(host=parse(one.endpoint).host, port=port)))}")
    return (*found, *sets)


def of_this_machine() -> "tuple[CollectorConfig, discovery.Endpoints | None]":
    """The configuration of where the running collector writes, and its announcement; as shipped without."""
    from overwatch.config import load

    running = discovery.read()
    if running is None or running.data is None:
        return load(None, ()), running
    sets = [*placed(None, (), Path(running.data), None)]
    if running.recording is not None:
        sets.append(f"exporters.otlp_file.path={json.dumps(running.recording)}")
    return load(None, sets), running


@click.group()
def config() -> None:
    """Check and show the collector's configuration."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@file_option
@sets_option
def validate(file: Path | None, path: Path | None, sets: tuple[str, ...]) -> None:
    """Print all that is wrong with a configuration and the files that it names; status 1 if anything is.

    FILE is the same as --config FILE.
    """
    from overwatch import config as configuration
    from overwatch.collector.settings import unusable

    if file is not None and path is not None:
        raise click.UsageError("there can be one file; leave FILE or --config out")
    path = path or file
    try:
        config, _, wrong = configuration.looked_at(path, sets)
    except configuration.ConfigError as error:
        raise click.ClickException(str(error)) from error
    wrong += unusable(config)
    if wrong:
        raise click.ClickException("\n".join(wrong))
    click.echo(f"{path or 'the shipped configuration'} is valid")


@config.command("print")
@file_option
@sets_option
def print_(path: Path | None, sets: tuple[str, ...]) -> None:
    """Print the whole configuration as it holds, in YAML; secrets are not shown."""
    from overwatch.config import as_yaml

    click.echo(as_yaml(_load(path, sets)), nl=False)


@config.command()
def components() -> None:
    """List receivers, exporters and extensions with their settings, in YAML."""
    import yaml

    from overwatch.collector import CollectorConfig
    from overwatch.collector.components import ROOTS, table

    listed: dict[str, Any] = {"buildinfo": {"command": "overwatch", "version": __version__}}
    for root in ROOTS:
        listed[root] = {
            name: {"about": row.about, "settings": dict(_settings(row.config, ""))}
            for name, row in table(root).items()
        }
        several = {name: f"One more `{name}`." for name, row in table(root).items() if row.is_several}
        if several:
            listed[root]["type/name"] = {"about": _SEVERAL, "settings": several}
    for field in msgspec.structs.fields(CollectorConfig):
        if field.name in ROOTS:
            continue
        found = described(field.type)
        listed[field.name] = {
            one.encode_name: {"about": found.get(one.name, ""), "settings": dict(_settings(one.type, ""))}
            for one in msgspec.structs.fields(field.type)
        }
    click.echo(yaml.safe_dump(listed, sort_keys=False, width=110), nl=False)


@config.command()
@click.argument("of", type=click.Choice(["collector", "tui"]), default="collector")
def schema(of: str) -> None:
    """Print the JSON Schema of the collector's configuration, or of the terminal's settings (tui)."""
    from overwatch.config import file_type
    from overwatch.tui.settings import Settings

    def text(_: type) -> dict[str, Any]:
        return {"type": "string"}

    kind = file_type() if of == "collector" else Settings
    schema = msgspec.json.schema(kind, schema_hook=text)
    if of == "collector":
        _allow_several(schema["$defs"])
    click.echo(json.dumps(schema, indent=2))


def _allow_several(defined: dict[str, Any]) -> None:
    """Components of one type by several names, as they are written."""
    from overwatch.collector.components import ROOTS, patterns

    refs = {name: {"$ref": f"#/$defs/{name}"} for name in defined}
    for root in ROOTS:
        if found := patterns(root, refs):
            defined[root.capitalize()]["patternProperties"] = found


def _load(path: Path | None, sets: tuple[str, ...]) -> "CollectorConfig":
    from overwatch import config as configuration

    try:
        return configuration.load(path, sets)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _settings(kind: Any, path: str) -> list[tuple[str, str]]:
    """Every setting below a section, with its default and what it means."""
    section = _section(kind)
    if section is None:
        return []
    about, found = described(section), []
    for field in msgspec.structs.fields(section):
        here = f"{path}{field.encode_name}"
        below = _settings(field.type, f"{here}.")
        if below:
            found += below
        else:
            found.append((here, f"{about.get(field.name, '')} {_default(field)}"))
    return found


def _section(kind: Any) -> type[msgspec.Struct] | None:
    """The section that a field holds, where it holds one."""
    options = (kind, *getattr(kind, "__args__", ()))
    return next((one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _default(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default is msgspec.NODEFAULT:
        return "Required."
    return "Not set by default." if default in (None, (), {}) else f"Default: {default}."
