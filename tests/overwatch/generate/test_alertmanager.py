"""The example of an Alertmanager: amtool accepts it, and alerts go where they should."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from overwatch.generate.rules import Plan, steady_alerts, windowed_alerts
from tests.real.servers import need

CONFIG = Path(__file__).parents[3] / "dashboards/alertmanager/alertmanager.yml"
NAMES = {alert.name: alert for alert in (*steady_alerts(Plan()), *windowed_alerts(Plan()))}


def amtool(*words: str) -> str:
    """What amtool prints; it must agree."""
    need("amtool")
    done = subprocess.run(["amtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_amtool_accepts_it() -> None:
    """As it is in the repository."""
    assert "SUCCESS" in amtool("check-config", str(CONFIG))


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_goes_to_who_must_know(name: str) -> None:
    """Critical ones page, all others are tickets."""
    alert = NAMES[name]
    wanted = "page" if alert.severity == "critical" else "ticket"
    labels = [f"alertname={name}", f"severity={alert.severity}", f"area={alert.area.value}", "rl_run_id=a"]

    routed = amtool(
        "config", "routes", "test", f"--config.file={CONFIG}", f"--verify.receivers={wanted}", *labels
    )
    assert routed.split() == [wanted]


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    found = re.fullmatch(r'(\w+)(=~|!=|=)"([^"]*)"', matcher)
    assert found, matcher
    name, sign, word = found.groups()
    if sign == "=~":
        return re.fullmatch(word, labels.get(name, "")) is not None
    return (labels.get(name, "") == word) == (sign == "=")


def test_a_cause_mutes_its_symptoms_and_nothing_mutes_itself() -> None:
    """Every name in a rule is an alert; source and target are apart; only a collector mutes over all runs."""
    for rule in yaml.safe_load(CONFIG.read_text())["inhibit_rules"]:
        reported = {
            name: {"alertname": name, "severity": alert.severity, "area": alert.area.value}
            for name, alert in NAMES.items()
        }
        sources, targets = (
            {name for name, labels in reported.items() if all(_matches(one, labels) for one in rule[side])}
            for side in ("source_matchers", "target_matchers")
        )
        assert sources
        assert targets
        assert not sources & targets
        assert rule.get("equal") == ["rl_run_id"] or sources == {"OverwatchCollectorDown"}
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            words = re.findall(r"Overwatch\w+", matcher)
            assert set(words) <= set(NAMES), matcher
