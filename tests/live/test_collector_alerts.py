"""Every alert about the collector fires from a real one with a planted fault, before a real Prometheus.

One collector has all faults at once: a small disk, few connections, runs and series, a certificate that ends,
an exporter whose destination is away; six trainers report to it. Then it is killed.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from overwatch.catalog.alerts import PREFIX
from overwatch.generate.rules import rule_file, steady_alerts
from tests.e2e.collecting import until
from tests.e2e.killing import Collector
from tests.e2e.test_collector_full_disk import mounted
from tests.live.faults import COLLECTOR
from tests.live.flying import PLAN, ROOT, kill_all
from tests.overwatch.collector.pki import OPENSSL, authority, signed
from tests.ports import free_port
from tests.real.servers import instant_query, need, serving

pytestmark = pytest.mark.timeout(300)

TRAINERS = 6
FIRING = 'count by (alertname) (last_over_time(ALERTS{alertstate="firing",area="collector"}[5m]))'


def _sets(folder: Path, disk: Path) -> tuple[str, ...]:
    """The collector's configuration with all faults."""
    return (
        f"extensions.file_storage.directory={disk}",
        f"exporters.otlp_file.path={disk}/otlp",
        "exporters.prometheus.max_series=40",
        "exporters.aggregator.max_runs=1",
        "receivers.otlp.protocols.http.connections.max_connections=4",
        f"receivers.otlp.protocols.grpc.tls.cert_file={folder}/server.pem",
        f"receivers.otlp.protocols.grpc.tls.key_file={folder}/server.key",
    )


@contextmanager
def _prometheus(folder: Path, runs: str, own: str) -> Iterator[str]:
    (folder / "rules.yaml").write_text(rule_file(steady_alerts(PLAN), PLAN))
    jobs = {"overwatch": runs, "overwatch-collector": own}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": job == "overwatch",
                "static_configs": [{"targets": [url.removeprefix("http://").removesuffix("/metrics")]}],
            }
            for job, url in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [need("prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]
    with serving(command, folder, address):
        yield f"http://{address}"


def _fired(url: str) -> set[str]:
    labels = [series["metric"] for series in instant_query(url, FIRING)]
    return {one["alertname"].removeprefix(PREFIX) for one in labels if isinstance(one, dict)}


def _trainer(endpoint: str, number: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.live.trainers.bandit", "--run-id", f"run-{number}"]
    return subprocess.Popen([*command, "--endpoint", endpoint, "--updates", "400"], cwd=ROOT)


def _fill(disk: Path) -> None:
    """Take all that is left of a disk, as another program does."""
    with suppress(OSError), (disk / "more").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


def test_every_alert_about_a_collector_fires(tmp_path: Path) -> None:
    """All of the table, but for those that state what they wait for; that it is down once it was killed."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed; apt-get install openssl")
    authority(tmp_path, "ca")
    signed(tmp_path, "server")
    wanted = {name for name, proof in COLLECTOR.items() if proof.is_planted}
    with mounted(tmp_path / "disk", 24) as disk:
        (disk / "ballast").write_bytes(bytes(16 << 20))
        collector = Collector(tmp_path / "own", *_sets(tmp_path, disk))
        ends = collector.start()
        with _prometheus(tmp_path, str(ends.metrics), str(ends.telemetry)) as url:
            trainers = [_trainer(str(ends.otlp_http), number) for number in range(TRAINERS)]
            try:
                with suppress(AssertionError):
                    until(lambda: "StorageFilling" in _fired(url), "a disk that is nearly full", 60)
                    _fill(disk)
                    until(lambda: wanted - {"CollectorDown"} <= _fired(url), "all alerts but one", 90)
                missing = wanted - {"CollectorDown"} - _fired(url)
            finally:
                for trainer in trainers:
                    kill_all(trainer)
                collector.kill()
            assert missing == set()
            until(lambda: "CollectorDown" in _fired(url), "the alert that it is down", 60)
