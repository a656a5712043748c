"""Every name that a user could type or query at the freeze still exists, or is listed as removed."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from click.testing import CliRunner

from overwatch.catalog import ROWS
from overwatch.cli import main
from overwatch_rl.cli import main as rl_main

ROOT: Final = Path(__file__).parents[2]
FROZEN: Final[dict[str, Any]] = json.loads((ROOT / "tests/golden/surface.json").read_text(encoding="utf-8"))
REMOVED: Final = tomllib.loads((ROOT / "tests/contracts/removed.toml").read_text(encoding="utf-8"))["removed"]


def _commands(command: click.Command, path: str) -> Iterator[str]:
    yield path
    for parameter in command.params:
        options = [*parameter.opts, *parameter.secondary_opts]
        yield from (f"{path} {option}" for option in options if option.startswith("-"))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, f"{path} {name}")


def _settings() -> Iterator[str]:
    listed = yaml.safe_load(CliRunner().invoke(main, ["config", "components"]).stdout)
    for part in ("receivers", "exporters", "extensions", "diagnosis"):
        for name, section in listed[part].items():
            yield f"{part}.{name}"
            yield from (f"{part}.{name}.{setting}" for setting in section.get("settings") or ())


def _rules() -> Iterator[str]:
    for path in (ROOT / "dashboards/rules").glob("*.yaml"):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from (rule.get("alert") or rule["record"] for rule in group["rules"])


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, field in (schema.get("properties") or {}).items():
        yield f"{path}{name}"
        yield from _fields(field, f"{path}{name}.")


def _snapshot() -> Iterator[str]:
    schema = json.loads((ROOT / "otel/snapshot.schema.json").read_text(encoding="utf-8"))
    for name, field in schema["$defs"].items():
        yield from _fields(field, f"{name}.")


def _before(kind: str) -> set[str]:
    match kind:
        case "command":
            return {
                f"{program}{' ' * bool(path)}{path}{' ' * bool(option)}{option}"
                for program in ("overwatch", "overwatch-rl")
                for path, options in FROZEN[program].items()
                for option in ("", *options)
            }
        case "config key":
            return {
                *FROZEN["config"],
                *(name for name in FROZEN["components"] if not name.startswith("service.")),
            }
        case "alert":
            return {name.split()[1] for name in FROZEN["rules"]}
        case "metric":
            return set(FROZEN["rows"])
    return set(FROZEN["snapshot"])


def _now(kind: str) -> set[str]:
    match kind:
        case "command":
            return {*_commands(main, "overwatch"), *_commands(rl_main, "overwatch-rl")}
        case "config key":
            return set(_settings())
        case "alert":
            return set(_rules())
        case "metric":
            return {row.name for row in ROWS}
    return set(_snapshot())


@pytest.mark.parametrize("kind", ["command", "config key", "alert", "metric", "snapshot field"])
def test_a_name_that_a_user_could_use_exists_or_is_listed_as_removed(kind: str) -> None:
    """What is gone names its replacement; what is listed as gone was there."""
    before, now = _before(kind), _now(kind)
    removed = [str(row["name"]) for row in REMOVED if row["kind"] == kind]
    listed = {
        name
        for name in before
        if any(name == row or re.match(rf"{re.escape(row)}[ .]", name) for row in removed)
    }

    assert len(before) > 80
    assert sorted(before - now - listed) == []
