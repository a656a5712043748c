"""The rules of Grafana's dashboard-linter, of our own writing, and what is left out with a reason.

A rule takes a dashboard's JSON and yields what breaks it. `dashboards/grafana/.lint` lists exclusions in the
linter's own form, so that the original gives the same answer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests import promql

Board = dict[str, Any]
ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "dashboards" / "grafana"
COUNTERS: Final = ("rate", "irate", "increase")
WITH_UNITS: Final = ("stat", "table", "timeseries", "gauge", "bargauge")
UNITS: Final = {
    "none", "short", "percent", "percentunit", "bytes", "decbytes", "binBps", "Bps", "celsius", "watt",
    "hertz", "s", "ms", "cps", "ops", "reqps", "bool", "dateTimeFromNow",
}  # fmt: skip
"""Of Grafana's units, those that may be used here."""


def template_datasource_rule(board: Board) -> Iterator[str]:
    """Exactly one data source, chosen by a variable."""
    found = [one for one in _variables(board) if one["type"] == "datasource"]
    if [(one["name"], one["label"], one["query"]) for one in found] != [
        ("datasource", "Data source", "prometheus")
    ]:
        yield f"variables of data sources: {[one['name'] for one in found]}"


def template_job_rule(board: Board) -> Iterator[str]:
    """A variable `job` that takes several, and all."""
    yield from _template(board, "job")


def template_instance_rule(board: Board) -> Iterator[str]:
    """A variable `instance` that takes several, and all."""
    yield from _template(board, "instance")


def _template(board: Board, name: str) -> Iterator[str]:
    found = [one for one in _variables(board) if one["name"] == name]
    if not found:
        yield f"no variable {name}"
    for one in found:
        if not (one["multi"] and one["includeAll"] and one["allValue"] == ".+"):
            yield f"variable {name} does not take several and all"


def template_label_promql_rule(board: Board) -> Iterator[str]:
    """What a variable asks is `label_values` of something that parses."""
    for one in _variables(board):
        if one["type"] != "query":
            continue
        inner = one["query"].removeprefix("label_values(").removesuffix(")")
        series, _, label = inner.rpartition(",")
        if not series or not label.strip() or not promql.selected(promql.filled(series)):
            yield f"variable {one['name']} asks {one['query']}"


def template_on_time_change_reload_rule(board: Board) -> Iterator[str]:
    """Variables are asked anew when the time changes."""
    for one in _variables(board):
        if one["type"] == "query" and one.get("refresh") != 2:
            yield f"variable {one['name']} is not reloaded"


def panel_datasource_rule(board: Board) -> Iterator[str]:
    """Panels and targets use the variable."""
    for panel in board["panels"]:
        for holder in (panel, *panel["targets"]):
            if holder["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield f"{panel['title']}: {holder['datasource']}"


def panel_title_description_rule(board: Board) -> Iterator[str]:
    """Each panel has both."""
    for panel in board["panels"]:
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel['id']} lacks a title or a description"


def panel_units_rule(board: Board) -> Iterator[str]:
    """Numbers have a unit that Grafana knows."""
    for panel in board["panels"]:
        config = panel["fieldConfig"]
        given = [config["defaults"].get("unit")]
        given += [
            one["value"] for over in config["overrides"] for one in over["properties"] if one["id"] == "unit"
        ]
        if panel["type"] in WITH_UNITS and not set(given) <= UNITS:
            yield f"{panel['title']}: {given}"


def panel_no_targets_rule(board: Board) -> Iterator[str]:
    """Each panel asks something."""
    for panel in board["panels"]:
        if not panel.get("targets"):
            yield panel["title"]


def target_promql_rule(board: Board) -> Iterator[str]:
    """Everything asked is PromQL."""
    for title, expr in targets(board):
        try:
            promql.selected(promql.filled(expr))
        except ValueError as error:
            yield f"{title}: {error}"


def target_rate_interval_rule(board: Board) -> Iterator[str]:
    """A rate is taken over `$__rate_interval`."""
    for title, expr in targets(board):
        for function in ("rate(", "irate("):
            for part in expr.split(function)[1:]:
                if "[$__rate_interval]" not in part.partition(")")[0]:
                    yield f"{title}: {expr}"


def target_job_rule(board: Board) -> Iterator[str]:
    """Each selector is of the chosen jobs."""
    yield from _matched(board, "job")


def target_instance_rule(board: Board) -> Iterator[str]:
    """Each selector is of the chosen instances."""
    yield from _matched(board, "instance")


def _matched(board: Board, label: str) -> Iterator[str]:
    for title, expr in targets(board):
        named = expr.replace(f"${label}", f"any-{label}")
        for one in promql.selected(promql.filled(named)):
            if one.labels.get(label) != f"any-{label}":
                yield f"{title}: {one.name} has no {label}"


def target_counter_agg_rule(board: Board) -> Iterator[str]:
    """What only grows is shown by how fast it grows."""
    for title, expr in targets(board):
        for one in promql.selected(promql.filled(expr)):
            if one.name.endswith("_total") and not (one.ranged and one.within[-1:][0] in COUNTERS):
                yield f"{title}: {one.name}"


def uneditable_dashboard(board: Board) -> Iterator[str]:
    """A click does not change what is in files."""
    if board.get("editable", True):
        yield "editable"


RULES: Final[dict[str, Callable[[Board], Iterator[str]]]] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        template_datasource_rule, template_job_rule, template_instance_rule, template_label_promql_rule,
        template_on_time_change_reload_rule, panel_datasource_rule, panel_title_description_rule,
        panel_units_rule, panel_no_targets_rule, target_promql_rule, target_rate_interval_rule,
        target_job_rule, target_instance_rule, target_counter_agg_rule, uneditable_dashboard,
    )
}  # fmt: skip


def targets(board: Board) -> Iterator[tuple[str, str]]:
    """Title of the panel and expression of all that a dashboard asks."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def _variables(board: Board) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board["templating"]["list"]
    return found


def excluded(rule: str, board: Board, problem: str) -> bool:
    """Whether the list of exclusions has it, with a reason."""
    listed = yaml.safe_load((FOLDER / ".lint").read_text(encoding="utf-8"))["exclusions"].get(rule, {})
    if len(listed.get("reason", "")) < 20:
        return False
    return any(
        entry["dashboard"] == board["title"] and problem.startswith(entry.get("panel", ""))
        for entry in listed["entries"]
    )
