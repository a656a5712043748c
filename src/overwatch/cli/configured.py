"""The options by which commands take a collector's configuration."""

import json
from pathlib import Path
from typing import Final

import click


def _one(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    """The file that was named; of two the first would be left out without a word."""
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
        asked = {one.path: one for one in listeners(load(path, sets))}
        for port, one in enumerate((asked[key] for key in _PORTS), start=port_base):
            found.append(f"{one.path}={json.dumps(str(Address(host=parse(one.endpoint).host, port=port)))}")
    return (*found, *sets)
