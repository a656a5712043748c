"""A real Prometheus that takes from two others what they recorded of the runs of their own collectors."""

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from overwatch.collector import Service
from overwatch.generate.boards import Board
from tests import promql
from tests.overwatch.collector.running import eventually, http, reported, run_started, running, update
from tests.overwatch.generate.test_rules import promtool
from tests.ports import free_port
from tests.real.servers import instant_query, need, prometheus, serving, value

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "dashboards/prometheus/federation.yml"


def send_update(service: Service, run_id: str, index: int) -> None:
    """One update of a run."""
    events = [run_started()] if index == 1 else []
    body = reported(run_id, [*events, update(0.01, index)], first_seq=index + (index > 1))
    url, kind = f"{service.endpoints.otlp_http}/v1/logs", "application/x-protobuf"
    assert http(url, body, "POST", content_type=kind).status == 200


def federating(folder: Path, urls: list[str]) -> list[str]:
    """The command of a Prometheus with the shipped configuration, which takes from these."""
    config = yaml.safe_load(SHIPPED.read_text())
    config["global"]["scrape_interval"] = "500ms"
    (scraped,) = config["scrape_configs"]
    scraped["static_configs"] = [{"targets": [url.removeprefix("http://") for url in urls]}]
    folder.mkdir()
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    config_file, data = folder / "prometheus.yml", folder / "tsdb"
    return [need("prometheus"), f"--config.file={config_file}", f"--storage.tsdb.path={data}"]


def test_the_shipped_configuration_is_one() -> None:
    """As promtool reads it."""
    assert "SUCCESS" in promtool("check", "config", SHIPPED)


@pytest.mark.timeout(240)
def test_two_clusters_are_seen_in_one_prometheus(tmp_path: Path) -> None:
    """Runs keep their cluster, one that both report is seen as such, and the dashboard has its answers."""
    need("prometheus")
    with ExitStack() as ending:
        services, urls = {}, []
        for cluster in ("berlin", "oslo"):
            folder = tmp_path / cluster
            folder.mkdir()
            services[cluster] = ending.enter_context(running(folder))
            urls.append(ending.enter_context(prometheus(folder, services[cluster], cluster=cluster)))
        address, folder = f"127.0.0.1:{free_port()}", tmp_path / "all"
        command = [*federating(folder, urls), f"--web.listen-address={address}"]
        ending.enter_context(serving(command, folder, address))
        index, deadline, found = 0, time.monotonic() + 90, []
        while len(found) < 4 and time.monotonic() < deadline:
            index += 1
            for cluster, service in services.items():
                send_update(service, f"only-{cluster}", index)
                send_update(service, "both", index)
            found = instant_query(f"http://{address}", "overwatch:run_useful:now == 1")
            time.sleep(0.2)
        runs = {(one["metric"]["cluster"], one["metric"]["rl_run_id"]) for one in found}
        board = json.loads((ROOT / Board.FEDERATION.file).read_text(encoding="utf-8"))
        asked = {
            f"{panel['title']} {target['refId']}": promql.filled(target["expr"])
            for panel in board["panels"]
            for target in panel["targets"]
        }
        answers = {where: instant_query(f"http://{address}", expr) for where, expr in asked.items()}
        clusters = value(answers["Clusters that report A"])
        twice = value(answers["Runs at two clusters A"])
        jobs = eventually(lambda: instant_query(f"http://{address}", 'up{job="overwatch-federation"} == 1'))

    assert runs == {("berlin", "only-berlin"), ("berlin", "both"), ("oslo", "only-oslo"), ("oslo", "both")}
    assert (clusters, twice, len(jobs)) == (2, 1, 2)
    # These runs have no envs, lanes or returns; all else is there.
    empty = {where for where, found in answers.items() if not found}
    runs_table = "Runs of all clusters, the worst first"
    assert empty <= {
        "Clusters F",
        f"{runs_table} E",
        f"{runs_table} F",
        "Env steps a second of each cluster A",
    }
