"""The stack's files: the shipped configuration with this machine's places filled in, and its secrets.

Rules: what is shipped stays the one truth, so only addresses and paths change here; secrets are made
once, are this user's alone and never printed. Must not know processes.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from overwatch import discovery
from overwatch.cli.stack.parts import ALERTMANAGER, GRAFANA, LOOPBACK, PROMETHEUS

RUNS_JOB: Final = "overwatch"
COLLECTOR_JOB: Final = "overwatch-collector"
SCRAPE_TOKEN: Final = "scrape_token"  # noqa: S105 a file's name
_MADE: Final = "# Written by `overwatch stack up`; changes here are lost with the next one.\n"


class StackError(ValueError):
    """The stack cannot do what was asked; the message names what stands in the way, and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user asked of the stack, as far as its files go."""

    ports: Mapping[str, int]
    """Port of each part that is installed."""
    runs: str
    """URL of the page of the runs."""
    collector: str
    """URL of the collector's own page."""
    token: str | None = None
    """The collector's read token, where it is known."""
    windows: str = "24h"
    """How long runs usually last: burn rates are taken over windows of that length."""
    webhook: str | None = None
    """Where alerts are sent; nowhere without, they are shown."""


def shipped() -> Path:
    """The folder of dashboards, rules and example configuration that comes with Overwatch."""
    packed = Path(str(resources.files("overwatch") / "dashboards"))
    return packed if packed.is_dir() else Path(__file__).parents[4] / "dashboards"


def write_all(folder: Path, wanted: Wanted) -> None:
    """Write all files below the stack's folder; raises `StackError` where that cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_token(folder / PROMETHEUS.name / SCRAPE_TOKEN, wanted.token)
        _write_once(folder / GRAFANA.name / "admin_password")
        source = shipped()
        for target, text in _texts(folder, source, wanted).items():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(_MADE + text, encoding="utf-8")
        (folder / "runbooks.md").write_text(_runbooks(), encoding="utf-8")
        _copy_boards(source / "grafana", folder / GRAFANA.name / "dashboards")
    except OSError as error:
        raise StackError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from error


def _texts(folder: Path, source: Path, wanted: Wanted) -> dict[Path, str]:
    provisioning = folder / GRAFANA.name / "provisioning"
    made = {
        folder / PROMETHEUS.name / "prometheus.yml": _prometheus(folder, source, wanted),
        folder / ALERTMANAGER.name / "alertmanager.yml": _alertmanager(source, wanted),
        provisioning / "datasources" / "overwatch.yaml": _datasources(source, wanted),
        provisioning / "dashboards" / "overwatch.yaml": _providers(folder, source),
    }
    texts = {path: yaml.safe_dump(content, sort_keys=False) for path, content in made.items()}
    return texts | _rules(folder, source, wanted)


def _runbooks() -> str:
    """What the alerts lead to; beside the rules, since a machine without the internet has no other copy."""
    from overwatch.generate.runbooks_page import runbooks_page

    return runbooks_page()


def _prometheus(folder: Path, source: Path, wanted: Wanted) -> dict[str, Any]:
    config = _read(source / "prometheus" / "prometheus.yml")
    config["rule_files"] = [str(path) for path in _rules(folder, source, wanted)]
    told = wanted.ports.get(ALERTMANAGER.name)
    if told is None:
        del config["alerting"]
    else:
        targets = [f"{LOOPBACK}:{told}"]
        config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": targets}]}]
    pages = {RUNS_JOB: wanted.runs, COLLECTOR_JOB: wanted.collector}
    for job in config["scrape_configs"]:
        url = urlsplit(pages[job["job_name"]])
        job["scheme"] = url.scheme
        job["authorization"] = {"credentials_file": str(folder / PROMETHEUS.name / SCRAPE_TOKEN)}
        job["static_configs"] = [{"targets": [url.netloc]}]
    return config


def _rules(folder: Path, source: Path, wanted: Wanted) -> dict[Path, str]:
    """The rules that hold for runs of this length, with links to this stack's Grafana and runbooks."""
    target = folder / PROMETHEUS.name / "rules"
    grafana = f"http://{LOOPBACK}:{wanted.ports.get(GRAFANA.name, GRAFANA.port)}/"
    return {
        target / name: (source / "rules" / name)
        .read_text(encoding="utf-8")
        .replace(f"http://{LOOPBACK}:{GRAFANA.port}/", grafana)
        .replace("runbook_url: docs/", f"runbook_url: {folder.as_uri()}/")
        for name in ("overwatch.yaml", f"windows-{wanted.windows}.yaml")
    }


def _alertmanager(source: Path, wanted: Wanted) -> dict[str, Any]:
    config = _read(source / "alertmanager" / "alertmanager.yml")
    hooks = {"webhook_configs": [{"url": wanted.webhook}]} if wanted.webhook else {}
    config["receivers"] = [{"name": receiver["name"], **hooks} for receiver in config["receivers"]]
    return config


def _datasources(source: Path, wanted: Wanted) -> dict[str, Any]:
    config = _read(source / "grafana" / "provisioning" / "datasources" / "overwatch.yaml")
    config["datasources"][0]["url"] = f"http://{LOOPBACK}:{wanted.ports[PROMETHEUS.name]}"
    return config


def _providers(folder: Path, source: Path) -> dict[str, Any]:
    config = _read(source / "grafana" / "provisioning" / "dashboards" / "overwatch.yaml")
    config["providers"][0]["options"]["path"] = str(folder / GRAFANA.name / "dashboards")
    return config


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def _copy_boards(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in source.glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())


def _write_token(path: Path, known: str | None) -> None:
    """The collector's own token where it has one; else one of ours, for a collector to be given."""
    if known is None:
        _write_once(path)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    discovery.write_private(path, known.encode())


def _write_once(path: Path) -> None:
    if not path.is_file():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        discovery.write_private(path, secrets.token_urlsafe(24).encode())
