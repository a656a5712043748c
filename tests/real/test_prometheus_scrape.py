"""A real Prometheus scrapes a real collector, and answers questions about the run over its own API."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from overwatch.collector import Service
from overwatch.events import Event
from tests import fakes
from tests.overwatch.collector.running import eventually, http, reported, running
from tests.real.servers import instant_query, need, prometheus, value


def send(service: Service, run_id: str, events: list[Event], first_seq: int) -> None:
    """Send events of one run to the collector."""
    body = reported(run_id, events, first_seq)
    headers = {"Content_Type": "application/x-protobuf"}
    assert http(f"{service.endpoints.otlp_http}/v1/logs", body, "POST", **headers).status == 200


def test_a_run_is_in_prometheus(tmp_path: Path) -> None:
    """Values, states, counters and the collector's own counters, as PromQL sees them."""
    need("prometheus")
    with running(tmp_path) as service, prometheus(tmp_path, service) as url:
        eventually(lambda: instant_query(url, "count(up == 1) == 2"), 30)
        at = time.time_ns()
        events: list[Event] = [
            fakes.started(at),
            fakes.policy(at, 1, kl_divergence=0.0421, entropy=0.6),
            fakes.envs(at, [0, 1, 2, 3], 1, reward=[1.0, 1.0, 1.0, 1.0]),
            fakes.crashed(at, 2),
        ]
        send(service, "scraped", events, 1)
        kl = eventually(lambda: instant_query(url, 'overwatch_policy_kl_divergence{rl_run_id="scraped"}'), 30)

        assert value(kl) == 0.0421
        assert value(instant_query(url, 'overwatch_run_status{rl_run_id="scraped",state="live"}')) == 1
        assert value(instant_query(url, 'overwatch_run_envs{rl_run_id="scraped",status="crashed"}')) == 1
        assert (
            value(instant_query(url, 'overwatch_run_info{rl_environment_name="digits",rl_algorithm="ppo"}'))
            == 1
        )
        assert value(instant_query(url, "time() - max(overwatch_run_last_update_timestamp_seconds)")) < 60
        assert instant_query(url, "overwatch_policy_learning_rate") == []
        assert instant_query(url, '{rl_run_id="scraped", exported_job!=""}') == []
        taken = 'otelcol_receiver_accepted_log_records_total{receiver="otlp",transport="http"}'
        assert value(eventually(lambda: instant_query(url, f"{taken} == 4"), 10)) == 4


def test_a_nan_moves_the_counter_that_alerts_watch(tmp_path: Path) -> None:
    """The non-finite counter is scraped at 0 first, so that `increase` sees the first NaN."""
    need("prometheus")
    counter = 'overwatch_run_non_finite_total{rl_run_id="poisoned"}'
    with running(tmp_path) as service, prometheus(tmp_path, service) as url:
        send(service, "poisoned", [fakes.started(time.time_ns())], 1)
        assert value(eventually(lambda: instant_query(url, counter), 30)) == 0
        send(service, "poisoned", [fakes.non_finite(time.time_ns(), "overwatch.policy.value_loss")], 2)
        risen = eventually(lambda: instant_query(url, f"increase({counter}[1m]) > 0"), 30)

        assert value(risen) > 0


def test_promtool_reads_both_pages(tmp_path: Path) -> None:
    """The linter reports nothing about the page of the runs, nor about the collector's own."""
    promtool = need("promtool")
    with running(tmp_path) as service:
        at = time.time_ns()
        send(service, "linted", [fakes.started(at), fakes.policy(at, 1, kl_divergence=0.01)], 1)
        ends = service.context.urls
        runs = eventually(lambda: b"kl_divergence" in (p := http(f"{ends['metrics']}/metrics").body) and p)
        own = http(f"{ends['telemetry']}/metrics").body

    for page in (runs, own):
        done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


SERIES_CAP = 1000
EXPECTED = (
    "overwatch_policy_kl_divergence", "overwatch_policy_entropy_ratio", "overwatch_run_updates_total",
    "overwatch_run_non_finite_total", "overwatch_findings", "overwatch_outlier_anomaly",
    "overwatch_run_envs",
    "overwatch_run_slots",
    "hw_gpu_utilization_ratio", "hw_temperature_celsius", "system_cpu_utilization_ratio",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_minute_of_a_stormy_run_scrapes_without_an_error(tmp_path: Path) -> None:
    """Two lanes of 32 envs, crashes and all: every scrape succeeds, series stay within the cap."""
    need("prometheus")
    simulate = [
        sys.executable,
        "-m",
        "overwatch.cli",
        "simulate",
        "--gpus",
        "2",
        "--envs",
        "32",
        "--slots",
        "6",
    ]
    simulate += ["--seconds", "75", "--run-id", "minute", "--fault", "crash-storm@20"]
    with running(tmp_path) as service, prometheus(tmp_path, service) as url:
        trainer = subprocess.Popen(
            [*simulate, "--endpoint", str(service.endpoints.otlp_http)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            eventually(lambda: instant_query(url, 'overwatch_run_updates_total{rl_run_id="minute"} > 2'), 60)
            job = 'job="overwatch"'
            counted = eventually(lambda: instant_query(url, f"count_over_time(up{{{job}}}[1m]) >= 236"), 120)
            lowest = value(instant_query(url, f"min_over_time(up{{{job}}}[1m])"))
            most = value(instant_query(url, f"max_over_time(scrape_samples_scraped{{{job}}}[1m])"))
            slowest = value(instant_query(url, f"max_over_time(scrape_duration_seconds{{{job}}}[1m])"))
            missing = [name for name in EXPECTED if not instant_query(url, f'{name}{{rl_run_id="minute"}}')]
        finally:
            trainer.terminate()
            trainer.wait(20)
    print(f"\n{value(counted):.0f} scrapes, at most {most:.0f} series, slowest {slowest * 1e3:.0f} ms")

    assert lowest == 1
    assert 0 < most <= SERIES_CAP
    assert missing == []
