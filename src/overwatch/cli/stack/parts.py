"""The servers of the stack: how each is found, started, asked whether it is ready, and got where it lacks.

A server is a row in `PARTS`; everything else follows. Rules: all listen on loopback alone and ask nothing of
the network. Must not know processes.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
WINDOWS: Final = ("6h", "24h", "7d")
"""Lengths of runs that there are rules for."""
KEPT_FOR: Final = "15d"
KEPT_SIZE: Final = "4GB"
_GRAFANA_HOMES: Final = (Path("/usr/share/grafana"), Path("/opt/homebrew/share/grafana"))


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
    """Grafana's settings: loopback, our provisioning, and no word to the outside."""
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
