"""The shipped dashboards obey dashboard-linter's rules, the catalogue's limits, and whoever is on call."""

import copy
import json
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from overwatch.catalog import Metric, Scope, Side, of_scope, prometheus_name
from overwatch.catalog.bounds import ROWS as BOUNDS
from overwatch.generate.boards import Board
from overwatch.serve.prometheus import RUN_STATES
from tests import promql
from tests.overwatch.generate.linting import ROOT, RULES, excluded

BOARDS = {board: json.loads((ROOT / board.file).read_text(encoding="utf-8")) for board in Board}
PANELS = [(board, panel) for board in Board for panel in BOARDS[board]["panels"]]
IDS = [f"{board.uid}:{panel['title']}" for board, panel in PANELS]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("board", Board, ids=lambda board: board.uid)
def test_a_dashboard_obeys_the_linter(board: Board, rule: str) -> None:
    """No problem but those that are excluded with a reason."""
    found = BOARDS[board]

    assert [one for one in RULES[rule](found) if not excluded(rule, found, one)] == []


def _broken(rule: str) -> dict[str, Any]:
    """The collector's dashboard with one thing wrong."""
    board = copy.deepcopy(BOARDS[Board.COLLECTOR])
    panel, variables = board["panels"][1], board["templating"]["list"]
    target = panel["targets"][0]
    match rule:
        case "template-datasource-rule":
            variables[0]["name"] = "mine"
        case "template-job-rule":
            variables[1]["multi"] = False
        case "template-instance-rule":
            del variables[2]
        case "template-label-promql-rule":
            variables[1]["query"] = "label_values(job)"
        case "template-on-time-change-reload-rule":
            variables[1]["refresh"] = 1
        case "panel-datasource-rule":
            target["datasource"] = {"type": "prometheus", "uid": "abc"}
        case "panel-title-description-rule":
            panel["description"] = ""
        case "panel-units-rule":
            panel["fieldConfig"]["defaults"]["unit"] = "furlongs"
        case "panel-no-targets-rule":
            panel["targets"] = []
        case "target-promql-rule":
            target["expr"] = "sum(("
        case "target-rate-interval-rule":
            target["expr"] = target["expr"].replace("$__rate_interval", "5m")
        case "target-job-rule":
            target["expr"] = target["expr"].replace('job=~"$job",', "")
        case "target-instance-rule":
            target["expr"] = target["expr"].replace('instance=~"$instance"', "")
        case "target-counter-agg-rule":
            target["expr"] = 'sum(otelcol_process_cpu_seconds_total{job="a"})'
        case "uneditable-dashboard":
            board["editable"] = True
    return board


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_what_breaks_it(rule: str) -> None:
    """Each rule reports something of a dashboard that is made to break it."""
    assert list(RULES[rule](_broken(rule)))


@pytest.mark.parametrize("board", Board, ids=lambda board: board.uid)
def test_a_dashboard_loads_in_grafana_10_to_13(board: Board) -> None:
    """Classic JSON with its own uid and no id, that Grafana's own types read and write back unchanged."""
    found = BOARDS[board]
    again = json.loads(json.dumps(Dashboard.from_json(found), cls=JSONEncoder))
    for part in ("panels", "links", "time", "title", "uid", "schemaVersion", "tags"):
        assert again[part] == found[part]

    assert found["schemaVersion"] <= 42
    assert found["uid"] == board.uid
    assert "id" not in found
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    assert len(json.dumps(found)) < 1_000_000


@pytest.mark.parametrize("board", Board, ids=lambda board: board.uid)
def test_one_click_leads_to_the_other_dashboards_with_time_and_choices(board: Board) -> None:
    """All dashboards are linked, and what was chosen goes along."""
    (link,) = BOARDS[board]["links"]

    assert (link["type"], link["tags"]) == ("dashboards", ["overwatch"])
    assert link["includeVars"]
    assert link["keepTime"]
    assert "overwatch" in BOARDS[board]["tags"]


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=IDS)
def test_a_panel_helps_who_is_on_call(board: Board, panel: dict[str, Any]) -> None:
    """One sentence states what is seen and what to make of it; colours have words; clicks keep the time."""
    about = panel["description"]
    assert about[0].isupper()
    assert about.endswith(".")
    assert 40 < len(about) < 260
    assert ". " not in about

    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] == "state-timeline":
        (words,) = defaults["mappings"]
        assert all(word["text"] and word["color"] for word in words["options"].values())
    for link in defaults.get("links", ()):
        assert link["url"].startswith(Board.RUN.path())
        assert "${__url_time_range}" in link["url"]
    place = panel["gridPos"]
    assert place["x"] + place["w"] <= 24


@pytest.mark.parametrize("board", Board, ids=lambda board: board.uid)
def test_panels_do_not_cover_each_other(board: Board) -> None:
    """No cell of the grid belongs to two panels, and there are few panels."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARDS[board]["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert len(BOARDS[board]["panels"]) <= 18


def test_uids_stay_what_they_were() -> None:
    """Bookmarks and alerts hold these words, so a change here breaks them."""
    assert {board.uid.removeprefix("overwatch-").upper() for board in Board} == {
        board.name for board in Board
    }
    assert len(Board) == 11


def _steps(row: Metric) -> list[tuple[float | None, str]]:
    """The limits of the default preset as Grafana's steps; none of limits relative to the run."""
    steps: list[tuple[float | None, str]] = [(None, "green")]
    for side in row.limits.sides:
        warning, critical = side.warning, side.critical
        if any(limit is not None and limit.relative for limit in (warning, critical)):
            return []
        limit = warning or critical
        if limit is not None and limit.side in (Side.BELOW, Side.AT_OR_BELOW):
            low = [(None, "red"), (critical.value, "yellow")] if critical is not None else [(None, "yellow")]
            steps = [*low, ((warning or limit).value, "green"), *steps[1:]]
        else:
            pairs = ((warning, "yellow"), (critical, "red"))
            steps += [(limit.value, colour) for limit, colour in pairs if limit is not None]
    return steps if len(steps) > 1 else []


def test_thresholds_are_the_rows() -> None:
    """Wherever a judged row of the policy is drawn alone, its limits are the catalogue's."""
    rows, seen = {prometheus_name(row): row for row in of_scope(Scope.POLICY) if _steps(row)}, 0
    for board, panel in PANELS:
        selected = [promql.selected(promql.filled(target["expr"])) for target in panel["targets"]]
        names = {selector.name for selectors in selected for selector in selectors}
        if board not in (Board.RUN, Board.FLEET) or len(names) != 1 or not names <= rows.keys():
            continue
        drawn = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert [(step["value"], step["color"]) for step in drawn] == _steps(rows[names.pop()])
        seen += 1

    assert seen == 8


def test_states_and_bounds_have_their_words() -> None:
    """Each state of a run and each bound is in the words of a timeline, with a code of its own."""
    for board, codes, word in (
        (Board.RUN, RUN_STATES, lambda state: state.upper().replace("_", " ")),
        (Board.LANES, [row.state for row in BOUNDS], lambda state: state.value),
    ):
        panels = [panel for of, panel in PANELS if of is board and panel["type"] == "state-timeline"]
        texts = [
            [option["text"] for option in panel["fieldConfig"]["defaults"]["mappings"][0]["options"].values()]
            for panel in panels
        ]
        assert any(set(map(word, codes)) <= set(words) and len(set(words)) == len(words) for words in texts)
