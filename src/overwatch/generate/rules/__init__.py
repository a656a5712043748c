"""From the catalogue to Prometheus' alert rules, and to the tests that promtool runs on them."""

from overwatch.generate.rules.alert import Alert
from overwatch.generate.rules.alerts import steady_alerts
from overwatch.generate.rules.files import case_file, rule_file
from overwatch.generate.rules.recorded import Recording, recordings
from overwatch.generate.rules.windowed import windowed_alerts
from overwatch.generate.rules.windows import Plan

__all__ = [
    "Alert", "Plan", "Recording", "case_file", "recordings", "rule_file", "steady_alerts", "windowed_alerts",
]  # fmt: skip
