"""The example of an Alertmanager in a real one: a cause mutes its symptoms, in its own run alone."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from overwatch.generate.rules import Plan, steady_alerts, windowed_alerts
from tests.overwatch.collector.running import eventually, http
from tests.ports import free_port
from tests.real.servers import need, serving

CONFIG = Path(__file__).parents[2] / "dashboards/alertmanager/alertmanager.yml"
ALERTS = {alert.name: alert for alert in (*steady_alerts(Plan()), *windowed_alerts(Plan()))}
Reported = set[tuple[str, str]]
"""Alert and run."""


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """One with the shipped configuration; yields its URL."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        need("prometheus-alertmanager"), f"--config.file={CONFIG}", f"--storage.path={folder / 'am'}",
        f"--web.listen-address={address}", "--cluster.listen-address=",
    ]  # fmt: skip
    with serving(command, folder, address):
        yield f"http://{address}"


def report(url: str, alerts: Reported) -> None:
    """Alerts as Prometheus sends them; of the collector's the run is empty."""
    body = [{"labels": _labels(name, run)} for name, run in alerts]
    assert (
        http(f"{url}/api/v2/alerts", json.dumps(body).encode(), Content_Type="application/json").status == 200
    )


def _labels(name: str, run: str) -> dict[str, str]:
    alert = ALERTS[name]
    reported = {"alertname": name, "severity": alert.severity, "area": alert.area.value}
    return reported | ({"rl_run_id": run} if run else {"job": "overwatch-collector"})


def muted(url: str) -> dict[tuple[str, str], bool]:
    """Of each alert whether another one mutes it."""
    found = json.loads(http(f"{url}/api/v2/alerts").body)
    return {
        (one["labels"]["alertname"], one["labels"].get("rl_run_id", "")): bool(one["status"]["inhibitedBy"])
        for one in found
    }


def settled(url: str, reported: Reported, silent: Reported) -> Reported:
    """What is mute once all that should be is; in vain after a while, so that a test shows the difference."""
    found: Reported = set()

    def look() -> bool:
        nonlocal found
        now = muted(url)
        found = {one for one in reported if now.get(one)}
        return now.keys() >= reported and found >= silent

    with suppress(pytest.fail.Exception):
        eventually(look, 10)
    return found


def _selected(matchers: list[str]) -> set[str]:
    """Names of our alerts that all of these matchers select."""
    found = set(ALERTS)
    for matcher in matchers:
        label, sign, word = re.fullmatch(r'(\w+)(=~|!=|=)"([^"]*)"', matcher).groups()  # type: ignore[union-attr]  # ours
        found &= {
            name
            for name in found
            if (
                re.fullmatch(word if sign == "=~" else re.escape(word), _labels(name, "").get(label, ""))
                is not None
            )
            == (sign != "!=")
        }
    return found


RULES = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]


@pytest.mark.timeout(120)
def test_a_cause_mutes_its_symptoms_in_its_own_run_alone(tmp_path: Path) -> None:
    """Each symptom beside each of its causes, and by itself: it is mute beside them alone."""
    pairs = {
        (cause, symptom)
        for rule in RULES
        for cause in _selected(rule["source_matchers"]) - {"OverwatchCollectorDown"}
        for symptom in _selected(rule["target_matchers"])
    }
    beside = {(symptom, f"{cause} and {symptom}") for cause, symptom in pairs}
    causes = {(cause, f"{cause} and {symptom}") for cause, symptom in pairs}
    alone = {(name, f"{name} alone") for name in {symptom for _, symptom in pairs}}
    with alertmanager(tmp_path) as url:
        report(url, beside | causes | alone)
        found = settled(url, beside | causes | alone, beside)

    assert found == beside
    assert len(pairs) > 50


@pytest.mark.timeout(120)
def test_without_a_collector_all_runs_are_mute(tmp_path: Path) -> None:
    """What is reported of runs while nothing is known of them wakes nobody."""
    runs = {(name, "a") for name, alert in ALERTS.items() if "rl_run_id" in alert.by}
    with alertmanager(tmp_path) as url:
        down = {("OverwatchCollectorDown", "")}
        report(url, runs | down)
        found = settled(url, runs | down, runs)

    assert found == runs
