"""The same run by scrape and by OTLP metrics, pushed on to a foreign receiver: series have the same names."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import overwatch.sdk
from tests.overwatch.collector.running import eventually, http, running
from tests.ports import free_port
from tests.real.servers import instant_query, started, value

ONLY_SCRAPED = (
    "overwatch_findings", "overwatch_outlier_", "overwatch_policy_status",
    "overwatch_policy_updates_beyond_limit", "overwatch_prometheus_", "overwatch_run_",
    "overwatch_env_crashes_total", "overwatch_sdk_", "overwatch_policy_trust_region", "target_info",
)  # fmt: skip
"""What only the collector knows, and what a trainer reports by facts alone; as in `docs/prometheus.md`."""
BOTH = {
    "overwatch_run_updates_total", "overwatch_run_episodes_total", "overwatch_run_steps_total",
    "overwatch_run_non_finite_total",
}  # fmt: skip
"""Those of the run's own series that a trainer pushes too."""
KL = "overwatch_policy_kl_divergence"
NAMING = "opentelemetry.usePrometheusNaming"


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[str]:
    """One that takes OTLP and names series as Prometheus does; yields its URL. Skips where there is none."""
    found = shutil.which("victoria-metrics")
    if found is None:
        pytest.skip("victoria-metrics is not installed; apt-get install victoria-metrics")
    stated = subprocess.run([found, "-help"], capture_output=True, text=True, check=False)
    if NAMING not in stated.stdout + stated.stderr:
        pytest.skip(f"this victoria-metrics has no -{NAMING}: Debian 13's 1.112 has")
    address = f"127.0.0.1:{free_port()}"
    command = [found, f"-storageDataPath={folder / 'vm'}", f"-httpListenAddr={address}", f"-{NAMING}"]
    with started(command, folder):
        yield f"http://{address}"


def named(url: str, run_id: str) -> dict[str, dict[str, str]]:
    """Labels of a series of each name that a server has of a run."""
    http(f"{url}/internal/force_flush")
    series = [one["metric"] for one in instant_query(url, f'{{rl_run_id="{run_id}"}}')]
    return {one["__name__"]: one for one in series if isinstance(one, dict)}


def scraped(page: str) -> set[str]:
    """Names of all samples of a page."""
    return {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if line[0] != "#"}


@pytest.mark.timeout(120)
def test_names_are_the_same_by_scrape_and_by_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer to VictoriaMetrics, beside the page of the collector that gets its events."""
    with victoria_metrics(tmp_path) as url:
        eventually(lambda: _is_up(url), 30)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{url}/opentelemetry/v1/metrics")
        with running(tmp_path) as service:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", str(service.endpoints.otlp_http))
            run = overwatch.sdk.start(run_id="pushed", sample=True, task="t", algo="ppo")
            run.update(update=1, kl_divergence=0.012, entropy=0.7, value_loss=0.5, learning_rate=3e-4)
            run.envs(step=1, reward=[1.0, 2.0])
            page = service.context.urls["metrics"]
            eventually(lambda: _missing(url, page) == set(), 40)
            pushed, ours = named(url, "pushed"), scraped(http(f"{page}/metrics").body.decode())
            kl = value(instant_query(url, "max(overwatch_policy_kl_divergence)"))
            assert run.close(10.0).delivered

    assert kl == 0.012
    assert pushed.keys() - ours == set()
    assert pushed.keys() >= BOTH


def _missing(url: str, page: str) -> set[str]:
    """What was scraped, should have been pushed, and was not."""
    ours = scraped(http(f"{page}/metrics").body.decode())
    reported = {name for name in ours if not name.startswith(ONLY_SCRAPED)}
    return (reported | BOTH) - named(url, "pushed").keys() if KL in reported else {KL}


def _is_up(url: str) -> bool:
    try:
        return http(f"{url}/health").status == 200
    except OSError:
        return False
