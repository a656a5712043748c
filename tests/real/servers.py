"""A real Prometheus beside a real collector, and what PromQL reports of it."""

import json
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.collector import Service
from tests.overwatch.collector.running import eventually, http
from tests.ports import free_port

CONFIG = """
global: {{scrape_interval: 250ms, evaluation_interval: 1s{more}}}
rule_files: ['{rules}']
scrape_configs:
- job_name: overwatch
  honor_labels: true
  static_configs: [{{targets: ['{runs}']}}]
- job_name: collector
  static_configs: [{{targets: ['{own}']}}]
"""


RULES = Path(__file__).parents[2] / "dashboards/rules/overwatch.yaml"
PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}
"""Debian's packages that are not called as what is in them."""


def need(name: str) -> str:
    """The path of a server that this test is about."""
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed; apt-get install {PACKAGES.get(name, name)}"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def prometheus(folder: Path, service: Service, *more: str, cluster: str = "") -> Iterator[str]:
    """A Prometheus, with `more` options, that scrapes a collector; yields its URL once it answers.

    It records what the shipped rules record, and names its `cluster` to another Prometheus.
    """
    config = folder / "prometheus.yml"
    ends = service.context.urls
    targets = {"runs": ends["metrics"], "own": ends["telemetry"]}
    named = {key: url.removeprefix("http://") for key, url in targets.items()}
    labels = f", external_labels: {{cluster: {cluster}}}" if cluster else ""
    config.write_text(CONFIG.format(**named, more=labels, rules=RULES))
    address = f"127.0.0.1:{free_port()}"
    command = [
        need("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={address}",
        *more,
    ]
    with serving(command, folder, address):
        yield f"http://{address}"


@contextmanager
def serving(command: list[str], folder: Path, address: str) -> Iterator[None]:
    """A server of Prometheus's family, from when it states that it answers there."""
    with started(command, folder):
        eventually(lambda: _is_ready(f"http://{address}"), 60)
        yield


def _is_ready(url: str) -> bool:
    try:
        return http(f"{url}/-/ready").status == 200
    except OSError:
        return False


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[None]:
    """A server that runs while the block lasts; what it prints is in a log in the folder."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


def instant_query(url: str, query: str) -> list[dict[str, object]]:
    """The series that an instant query finds."""
    answer = json.loads(http(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}").body)
    assert answer["status"] == "success", answer
    found: list[dict[str, object]] = answer["data"]["result"]
    return found


def value(found: list[dict[str, object]]) -> float:
    """The value of the only series."""
    (series,) = found
    pair = series["value"]
    assert isinstance(pair, list)
    return float(pair[1])
