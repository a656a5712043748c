"""The servers of `overwatch stack`, and their files: configuration, secrets, a compose file.

A server is a row in `PARTS`: how it is found, started, checked whether it is ready, and got where it lacks;
everything else follows. Rules: all listen on loopback alone and send nothing to the network. What is shipped
stays the one truth, so only addresses and paths change here; secrets are made once, are this user's alone and
never printed. Containers share the machine's network, so that all listen on loopback as without containers
and reach the collector there; each sees its own folder at the path that it has outside, and runs as this
user. Must not know processes.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from overwatch import discovery

LOOPBACK: Final = "127.0.0.1"
WINDOWS: Final = ("6h", "24h", "7d")
"""Lengths of runs that there are rules for."""
KEPT_FOR: Final = "15d"
KEPT_SIZE: Final = "4GB"
_GRAFANA_HOMES: Final = (Path("/usr/share/grafana"), Path("/opt/homebrew/share/grafana"))
RUNS_JOB: Final = "overwatch"
COLLECTOR_JOB: Final = "overwatch-collector"
SCRAPE_TOKEN: Final = "scrape_token"  # noqa: S105 a file's name
_MADE: Final = "# Written by `overwatch stack up`; changes here are lost with the next one.\n"
FILE: Final = "compose.yaml"
_MADE_COMPOSE: Final = "# Written by `overwatch stack compose`; changes here are lost with the next one.\n"
_DATA: Final = ("data", "logs", "plugins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a server is to run."""

    binary: str
    """Its program, in full."""
    folder: Path
    """Its own folder, for configuration and data."""
    port: int
    home: str | None = None
    """Where what comes with it lies; looked for without."""

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One server."""

    name: str
    programs: tuple[str, ...]
    """What its program may be called, the usual name first."""
    port: int
    ready: str
    """Path that answers 200 when it is ready."""
    get: str
    """How to get it."""
    command: Callable[[Spot], list[str]]
    image: str
    """Its container image, with a version."""
    inside: str
    """Its program in that image."""
    inside_home: str | None = None
    """What `Spot.home` is in that image."""
    environment: Callable[[Spot], dict[str, str]] = lambda _: {}
    rereads: bool = False
    """Whether it reads its configuration again on SIGHUP."""

    def find(self) -> str | None:
        """Its program on this machine."""
        return next((found for name in self.programs if (found := shutil.which(name))), None)


def _prometheus(spot: Spot) -> list[str]:
    return [
        spot.binary,
        f"--config.file={spot.folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={spot.folder / 'data'}",
        f"--storage.tsdb.retention.time={KEPT_FOR}",
        f"--storage.tsdb.retention.size={KEPT_SIZE}",
        f"--web.listen-address={spot.address}",
        f"--web.external-url=http://{spot.address}",
    ]


def _alertmanager(spot: Spot) -> list[str]:
    return [
        spot.binary,
        f"--config.file={spot.folder / 'alertmanager.yml'}",
        f"--storage.path={spot.folder / 'data'}",
        f"--web.listen-address={spot.address}",
        f"--web.external-url=http://{spot.address}",
        # Empty: alone, so that no second port is opened.
        "--cluster.listen-address=",
    ]


def _grafana(spot: Spot) -> list[str]:
    found = next((str(one) for one in _GRAFANA_HOMES if one.is_dir()), None)
    home = spot.home or (None if found is None else os.environ.get("GF_PATHS_HOME", found))
    words = [spot.binary] if Path(spot.binary).name == "grafana-server" else [spot.binary, "server"]
    return words if home is None else [*words, "--homepath", home]


def _grafana_settings(spot: Spot) -> dict[str, str]:
    """Grafana's settings: loopback, our provisioning, and nothing sent to the outside."""
    own = {
        "SERVER_HTTP_ADDR": LOOPBACK,
        "SERVER_HTTP_PORT": str(spot.port),
        "SECURITY_ADMIN_PASSWORD__FILE": str(spot.folder / "admin_password"),
        "PATHS_DATA": str(spot.folder / "data"),
        "PATHS_LOGS": str(spot.folder / "logs"),
        "PATHS_PLUGINS": str(spot.folder / "plugins"),
        "PATHS_PROVISIONING": str(spot.folder / "provisioning"),
        "DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(spot.folder / "dashboards" / "fleet.json"),
        "USERS_ALLOW_SIGN_UP": "false",
    }
    silent = (
        "ANALYTICS_REPORTING_ENABLED", "ANALYTICS_CHECK_FOR_UPDATES", "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
        "ANALYTICS_FEEDBACK_LINKS_ENABLED", "NEWS_NEWS_FEED_ENABLED", "SNAPSHOTS_EXTERNAL_ENABLED",
        "PLUGINS_PUBLIC_KEY_RETRIEVAL_ON_STARTUP",
    )  # fmt: skip
    settings = own | dict.fromkeys(silent, "false")
    settings |= {"SECURITY_DISABLE_GRAVATAR": "true", "PLUGINS_PREINSTALL_DISABLED": "true"}
    return {f"GF_{name}": value for name, value in settings.items()}


PROMETHEUS: Final = Part(
    name="prometheus",
    programs=("prometheus",),
    port=9090,
    ready="/-/ready",
    get="apt-get install prometheus, brew install prometheus, or https://prometheus.io/download",
    command=_prometheus,
    image="docker.io/prom/prometheus:v3.5.0",
    inside="/bin/prometheus",
    rereads=True,
)
ALERTMANAGER: Final = Part(
    name="alertmanager",
    programs=("alertmanager", "prometheus-alertmanager"),
    port=9093,
    ready="/-/ready",
    get="apt-get install prometheus-alertmanager, or https://prometheus.io/download",
    command=_alertmanager,
    image="docker.io/prom/alertmanager:v0.28.1",
    inside="/bin/alertmanager",
    rereads=True,
)
GRAFANA: Final = Part(
    name="grafana",
    programs=("grafana", "grafana-server"),
    port=3000,
    ready="/api/health",
    get="https://grafana.com/grafana/download, or brew install grafana",
    command=_grafana,
    image="docker.io/grafana/grafana:11.6.0",
    inside="/usr/share/grafana/bin/grafana",
    inside_home="/usr/share/grafana",
    environment=_grafana_settings,
)
PARTS: Final = (PROMETHEUS, ALERTMANAGER, GRAFANA)
"""In the order in which they start; they end the other way round."""


class StackError(ValueError):
    """The stack cannot do what was requested; the message names what stands in the way, and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user requested of the stack, as far as its files go."""

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
    return packed if packed.is_dir() else Path(__file__).parents[3] / "dashboards"


def write_all(folder: Path, wanted: Wanted) -> None:
    """Write all files below the stack's folder; raises `StackError` where that cannot be."""
    from overwatch.generate.runbooks_page import runbooks_page

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_token(folder / PROMETHEUS.name / SCRAPE_TOKEN, wanted.token)
        _write_once(folder / GRAFANA.name / "admin_password")
        source = shipped()
        for target, text in _texts(folder, source, wanted).items():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(_MADE + text, encoding="utf-8")
        # What the alerts lead to; beside the rules, since a machine without the internet has no other copy.
        (folder / "runbooks.md").write_text(runbooks_page(), encoding="utf-8")
        _copy_boards(source / "grafana", folder / GRAFANA.name / "dashboards")
    except OSError as error:
        raise StackError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from error


def _texts(folder: Path, source: Path, wanted: Wanted) -> dict[Path, str]:
    import yaml

    provisioning = folder / GRAFANA.name / "provisioning"
    made = {
        folder / PROMETHEUS.name / "prometheus.yml": _prometheus_file(folder, source, wanted),
        folder / ALERTMANAGER.name / "alertmanager.yml": _alertmanager_file(source, wanted),
        provisioning / "datasources" / "overwatch.yaml": _datasources(source, wanted),
        provisioning / "dashboards" / "overwatch.yaml": _providers(folder, source),
    }
    texts = {path: yaml.safe_dump(content, sort_keys=False) for path, content in made.items()}
    return texts | _rules(folder, source, wanted)


def _prometheus_file(folder: Path, source: Path, wanted: Wanted) -> dict[str, Any]:
    config = _read(source / "prometheus" / "prometheus.yml")
    config["rule_files"] = [str(path) for path in _rules(folder, source, wanted)]
    alertmanager = wanted.ports.get(ALERTMANAGER.name)
    if alertmanager is None:
        del config["alerting"]
    else:
        targets = [f"{LOOPBACK}:{alertmanager}"]
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


def _alertmanager_file(source: Path, wanted: Wanted) -> dict[str, Any]:
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
    import yaml

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


def write_compose(folder: Path, wanted: Wanted) -> Path:
    """Write all files of the stack and the compose file that uses them; raises `StackError`."""
    import yaml

    folder = folder.absolute()
    write_all(folder, wanted)
    services = {part.name: _service(part, folder, wanted) for part in PARTS}
    file = folder / FILE
    try:
        for part in PARTS:
            for name in _DATA:
                (folder / part.name / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        text = yaml.safe_dump({"name": "overwatch-stack", "services": services}, sort_keys=False, width=200)
        file.write_text(_MADE_COMPOSE + text, encoding="utf-8")
    except OSError as error:
        raise StackError(f"{error.filename or file} cannot be written: {error.strerror or error}") from error
    return file


def _service(part: Part, folder: Path, wanted: Wanted) -> dict[str, Any]:
    own = folder / part.name
    spot = Spot(binary=part.inside, folder=own, port=wanted.ports[part.name], home=part.inside_home)
    program, *arguments = part.command(spot)
    environment = part.environment(spot)
    made = {
        "image": part.image,
        "entrypoint": [program],
        "command": arguments,
        "network_mode": "host",
        "user": f"{os.getuid()}:{os.getgid()}",
        "restart": "unless-stopped",
        **({"environment": environment} if environment else {}),
        "volumes": [{"type": "bind", "source": str(own), "target": str(own)}],
    }
    return {key: _literal(value) for key, value in made.items()}


def _literal(value: Any) -> Any:
    """A value in which compose sees no variable: a dollar sign begins one."""
    if isinstance(value, dict):
        return {key: _literal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_literal(one) for one in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
