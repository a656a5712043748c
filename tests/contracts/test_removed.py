"""What `removed.toml` lists is gone, and each has a replacement."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
import pytest
import yaml
from click.testing import CliRunner

from overwatch.catalog import ROWS
from overwatch.cli import main
from overwatch.collector.tally import HELP, LEVELS

ROOT: Final = Path(__file__).parents[2]
REMOVED: Final[list[dict[str, str | int]]] = tomllib.loads(
    (ROOT / "tests/contracts/removed.toml").read_text(encoding="utf-8")
)["removed"]
KEYS: Final = {"kind", "name", "issue", "replacement"}


def _commands(command: click.Command, path: str) -> Iterator[str]:
    yield path
    yield from (f"{path} {option}" for parameter in command.params for option in parameter.opts)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _commands(below, f"{path} {name}")


def _config_keys() -> Iterator[str]:
    listed = yaml.safe_load(CliRunner().invoke(main, ["config", "components"]).stdout)
    for root in set(listed) - {"buildinfo"}:
        for name, section in listed[root].items():
            yield f"{root}.{name}"
            yield from (f"{root}.{name}.{setting}" for setting in section["settings"])


def _alerts() -> Iterator[str]:
    for path in (ROOT / "dashboards/rules").glob("*.yaml"):
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        yield from (rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule)


def _metrics() -> Iterator[str]:
    yield from (row.name for row in ROWS)
    yield from (f"{name}_total" for name in HELP)
    yield from LEVELS


def _targets() -> Iterator[str]:
    yield from re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def _extras() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from project["optional-dependencies"]


def _variables() -> Iterator[str]:
    yield from re.findall(
        r"\b(?:OVERWATCH|KUBEFLOW|OTEL)_[A-Z_]+\b", (ROOT / "docs/sdk.md").read_text(encoding="utf-8")
    )


NAMES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "command": lambda: _commands(main, "overwatch"),
    "config key": _config_keys,
    "alert": _alerts,
    "metric": _metrics,
    "make target": _targets,
    "extra": _extras,
    "environment variable": _variables,
}
"""Names that exist now, by kind."""


@cache
def _existing(kind: str) -> frozenset[str]:
    return frozenset(NAMES[kind]())


def _exists(kind: str, name: str) -> bool:
    if kind == "module":
        try:
            return find_spec(name) is not None
        except ModuleNotFoundError:  # its package is gone too
            return False
    return any(known == name or known.startswith((f"{name} ", f"{name}.")) for known in _existing(kind))


@pytest.mark.parametrize("row", REMOVED, ids=lambda row: f"{row['kind']} {row['name']}")
def test_what_is_listed_is_gone_and_has_a_replacement(row: dict[str, str | int]) -> None:
    """Nothing of that name is left."""
    assert set(row) == KEYS
    assert str(row["replacement"]).strip()
    assert not _exists(str(row["kind"]), str(row["name"]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("command", "overwatch doctor"),
        ("command", "overwatch config print"),
        ("command", "overwatch collect --config"),
        ("config key", "exporters.prometheus"),
        ("config key", "exporters.prometheus.max_series"),
        ("alert", "OverwatchCollectorDown"),
        ("metric", "overwatch.policy.kl_divergence"),
        ("metric", "otelcol_exporter_sent_spans_total"),
        ("make target", "bench-sdk"),
        ("extra", "tui"),
        ("environment variable", "OVERWATCH_RUN_ID"),
        ("module", "overwatch.cli.main"),
    ],
)
def test_what_exists_is_seen(kind: str, name: str) -> None:
    """A list that found nothing would hold anything to be gone."""
    assert _exists(kind, name)
