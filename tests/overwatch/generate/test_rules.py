"""Alert rules: promtool's report on them, that they ask only for what is exported, how few wake somebody."""

import dataclasses
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from overwatch.catalog import ROWS, prometheus_name
from overwatch.catalog.alerts import alerted_rows
from overwatch.collector.tally import HELP
from overwatch.collector.telemetry import TOWER
from overwatch.generate import FILES
from overwatch.generate.rules import (
    Alert,
    Plan,
    Recording,
    case_file,
    recordings,
    rule_file,
    steady_alerts,
    windowed_alerts,
)
from overwatch.generate.rules.windows import SCRAPES, UPDATES, span
from overwatch.generate.runbooks_page import runbooks_page
from tests.real.servers import need

ROOT = Path(__file__).parents[3]
RULES = ROOT / "dashboards/rules"
ALERTS = (*steady_alerts(Plan()), *windowed_alerts(Plan()))
EXPORTED = (
    {prometheus_name(row) for row in ROWS}
    | {f"{name}_total" for name in HELP}
    | {
        "up", "overwatch_findings", "overwatch_run_findings", "overwatch_run_status",
        "overwatch_run_last_checkpoint_timestamp_seconds",
        "overwatch_policy_updates_beyond_limit_total", "overwatch_prometheus_dropped_series_total",
        "overwatch_tower_capped_total", "otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity",
        "overwatch_storage_room_bytes", "overwatch_storage_max_bytes", "overwatch_storage_part_bytes",
        "overwatch_storage_share_bytes", "overwatch_listener_turned_away_connections_total",
        "overwatch_certificate_end_timestamp_seconds", "overwatch_tower_frame_timestamp_seconds",
        "overwatch_journal_commit_seconds_total", "overwatch_journal_commits_total",
        "overwatch_journal_waiting_seconds",
    }
    | {f"overwatch_tower_{name}_total" for name in TOWER}
)  # fmt: skip
"""What the pages have; that these are really there is shown where a real Prometheus is asked."""

RECORDED = {one.name for one in recordings(Plan())}


def promtool(*words: str | Path) -> str:
    """What promtool prints; it must agree."""
    need("promtool")
    done = subprocess.run(
        ["promtool", *words], cwd=RULES / "tests", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def selectors(node: object) -> Iterator[promql_parser.VectorSelector]:
    """All selectors below a node of an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from selectors(node.vector_selector if hasattr(node, "vector_selector") else node.vs)
    for name in ("lhs", "rhs", "expr"):
        below = getattr(node, name, None)
        if below is not None:
            yield from selectors(below)
    for below in getattr(node, "args", ()):
        yield from selectors(below)


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yaml")), ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    """With all its lints, duplicates among them."""
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", path)


@pytest.mark.parametrize("path", sorted((RULES / "tests").glob("*.yaml")), ids=lambda path: path.name)
def test_each_alert_fires_waits_rests_and_survives_without_data(path: Path) -> None:
    """Its four cases, in promtool's own hands."""
    assert "SUCCESS" in promtool("test", "rules", path)


def test_every_alert_has_its_four_cases() -> None:
    """Firing, pending, not firing, no data: each file's cases name each of its alerts."""
    for path in sorted(RULES.glob("*.yaml")):
        rules = yaml.safe_load(path.read_text())
        named = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
        cases = yaml.safe_load((RULES / "tests" / path.name).read_text())["tests"]
        assert len(cases) == 4
        for case in cases:
            assert {one["alertname"] for one in case["alert_rule_test"]} == named
        assert len(cases[1]["promql_expr_test"]) == len(named)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_states_what_it_is_and_where_to_look(alert: Alert) -> None:
    """A name with our prefix, a sentence, a description, and a heading that its runbook leads to."""
    assert re.fullmatch(r"Overwatch([A-Z][a-z0-9]*)+", alert.name)
    assert alert.severity in {"critical", "warning"}
    assert alert.summary[0].isupper()
    assert alert.summary.endswith(".")
    assert "{{" not in alert.summary
    assert alert.description
    assert f"\n## {alert.code}\n" in runbooks_page()


def test_few_alerts_wake_somebody() -> None:
    """At most six are critical, whatever is added."""
    assert {alert.name for alert in ALERTS if alert.severity == "critical"} == {
        "OverwatchCollectorDown",
        "OverwatchRunLost",
        "OverwatchNonFinite",
        "OverwatchPolicyCollapse",
        "OverwatchOomForecast",
        "OverwatchCheckpointStale",
    }


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_expression_asks_only_for_what_is_exported(alert: Alert) -> None:
    """It parses, names known series, and aggregates the instance away."""
    requested = list(selectors(promql_parser.parse(alert.expr)))

    assert requested
    assert {one.name for one in requested} <= EXPORTED | RECORDED
    assert "instance" not in alert.expr
    assert "instance" not in alert.by


@pytest.mark.parametrize("length", [1, 600, 21_600, 86_400, 604_800])
def test_windows_hold_enough_scrapes_and_updates(length: int) -> None:
    """However short a run, no window is too short to see anything; longer runs have longer windows."""
    plan = Plan(run_length_s=length, scrape_s=30, update_s=4)
    windows = [window for _, *pair in plan.pairs() for window in pair]

    assert min(windows) >= max(SCRAPES * 30, UPDATES * 4)
    assert windows[0::2] == sorted(windows[0::2])


def test_the_windows_of_a_day_are_those_of_the_usual_formula() -> None:
    """Two hours and a half of the slowest pace, a twelfth of it beside."""
    assert Plan().pairs()[-1] == (1.0, 8640, 720)
    assert [span(seconds) for seconds in (45, 60, 5400, 7200)] == ["45s", "1m", "90m", "2h"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"run_length_s": 0}, "run_length_s 0"),
        ({"budget": 0.0}, "budget 0"),
        ({"budget": 0.5}, "budget 0.5"),
        ({"useful": 1.0}, "useful 1.0"),
        ({"useful": 0.9}, "useful 0.9"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(what: dict[str, int], words: str) -> None:
    """With the name and the value."""
    with pytest.raises(ValueError, match=words):
        Plan(**what)  # type: ignore[arg-type]  # values of one type, of several fields


def test_a_row_that_the_default_preset_judges_has_an_alert() -> None:
    """Its limits stand in the rule, and nowhere in this test."""
    text = FILES["dashboards/rules/overwatch.yaml"]()
    for row in alerted_rows():
        assert f'code="policy-{row.short.replace("_", "-")}"' in text
    assert "warning > 0.015, critical > 0.03" in text


def test_a_divided_plan_holds_for_a_fraction() -> None:
    """What makes a test of an hour one of minutes divides holds and nothing else."""
    whole, fast = (steady_alerts(Plan(divisor=divisor)) for divisor in (1, 15))

    assert [dataclasses.replace(alert, hold_s=0, expr="") for alert in whole] == [
        dataclasses.replace(alert, hold_s=0, expr="") for alert in fast
    ]
    assert all(abs(one.hold_s / 15 - two.hold_s) <= 0.5 for one, two in zip(whole, fast, strict=True))


@pytest.mark.parametrize("one", recordings(Plan()), ids=lambda one: one.name)
def test_what_is_recorded_asks_for_what_is_there(one: Recording) -> None:
    """A run's series keep its id, a fleet's do not; another Prometheus distinguishes them by name."""
    requested = {found.name for found in selectors(promql_parser.parse(one.expr))}

    assert requested
    assert requested <= EXPORTED | RECORDED | {"overwatch_run_update"}
    assert "instance" not in one.expr
    assert re.fullmatch(r"overwatch:(run|fleet)_[a-z_]+:(now|avg|max|sum|rate)", one.name)


def _series(name: str, values: str, labels: str = "") -> dict[str, str]:
    return {"series": f'{name}{{job="t",instance="a",rl_run_id="r"{labels}}}', "values": values}


def _state(state: str, values: str) -> dict[str, str]:
    return _series("overwatch_run_status", values, f',state="{state}"')


@pytest.mark.parametrize(
    ("series", "useful"),
    [
        # A run that begins: nothing before its first update.
        ((_state("live", "1x40"), _series("overwatch_run_updates_total", "0x20 1+1x19")),
         {"0s": None, "285s": None, "330s": 1.0, "600s": 1.0}),
        # One that stalls: 200 s after its newest update.
        ((_state("live", "1x80"), _series("overwatch_run_updates_total", "0+1x20 20x59")),
         {"300s": 1.0, "450s": 1.0, "600s": 0.0, "1200s": 0.0}),
        # One that is lost: all else of it has gone from the page.
        ((_state("live", "1x20 0x60"), _state("lost", "0x20 1x60"),
          _series("overwatch_run_updates_total", "0+1x20 _x59")),
         {"300s": 1.0, "660s": 0.0, "1200s": 0.0}),
        # One that ended well: its time is over.
        ((_state("live", "1x20 0x60"), _state("completed", "0x20 1x60"),
          _series("overwatch_run_updates_total", "0+1x20 20x59")),
         {"300s": 1.0, "660s": None, "1200s": None}),
    ],
    ids=["begins", "stalls", "lost", "completed"],
)  # fmt: skip
def test_a_run_is_useful_while_it_makes_updates(
    tmp_path: Path, series: tuple[dict[str, str], ...], useful: dict[str, float | None]
) -> None:
    """As promtool evaluates it: 1, 0, or nothing where the time is not the run's."""
    calm = _series("overwatch_findings", "0x80", ',severity="critical"')
    name, labels = "overwatch:run_useful:now", '{__name__="overwatch:run_useful:now", rl_run_id="r"}'
    wanted = [
        {
            "expr": name,
            "eval_time": at,
            "exp_samples": [] if value is None else [{"labels": labels, "value": value}],
        }
        for at, value in useful.items()
    ]
    test = {"interval": "15s", "input_series": [*series, calm], "promql_expr_test": wanted}
    case = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [test]}
    (tmp_path / "rules.yaml").write_text(rule_file((), Plan(), recorded=recordings(Plan())))
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case))

    assert "SUCCESS" in promtool("test", "rules", tmp_path / "case.yaml")


def test_rules_and_cases_of_one_file_agree(tmp_path: Path) -> None:
    """As `overwatch rules` prints them, for runs of two hours that may be useless for a fiftieth of them."""
    plan = Plan(run_length_s=7200, useful=0.98)
    alerts = (*steady_alerts(plan), *windowed_alerts(plan))
    (tmp_path / "rules.yaml").write_text(rule_file(alerts, plan, recorded=recordings(plan)))
    (tmp_path / "cases.yaml").write_text(case_file("rules.yaml", alerts, plan))

    assert "SUCCESS" in promtool("test", "rules", tmp_path / "cases.yaml")
