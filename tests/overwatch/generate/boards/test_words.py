"""Colours and words of the dashboards are those of the catalogue."""

import json
from dataclasses import replace

import pytest

from overwatch.catalog import KL, Limits, Metric, Scope, Side, of_scope, prometheus_name
from overwatch.catalog.bounds import ROWS as BOUNDS
from overwatch.catalog.metric import NO_LIMITS, above, below, between
from overwatch.generate.boards import words
from overwatch.generate.boards.run import JUDGED, curve
from overwatch.generate.boards.spec import Step
from overwatch.generate.boards.uids import Board
from tests import promql
from tests.overwatch.generate.boards.linting import ROOT

G, Y, R = words.GREEN, words.YELLOW, words.RED


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (above(0.015, 0.03), [(None, G), (0.015, Y), (0.03, R)]),
        (above(2.0), [(None, G), (2.0, Y)]),
        (below(0.3, 0.1), [(None, R), (0.1, Y), (0.3, G)]),
        (below(0.0), [(None, Y), (0.0, G)]),
        (between(below(0.1), above(5.0, 20.0)), [(None, Y), (0.1, G), (5.0, Y), (20.0, R)]),
        (above(4.0, 10.0, relative=True), []),
        (NO_LIMITS, []),
    ],
)
def test_limits_become_colours(limits: Limits, steps: list[tuple[float | None, str]]) -> None:
    """From low to high, green where nothing is wrong; what is judged against the run itself has no line."""
    row = replace(KL, limits=limits)

    assert words.steps_of(row) == tuple(Step(at=at, colour=colour) for at, colour in steps)


def test_a_changed_limit_of_a_row_changes_its_panel() -> None:
    """Lines and sentence of a panel are of the row, not of the panel."""
    changed = replace(KL, limits=above(0.02, 0.05))

    before, after = (curve(row, "KL", f"Limits: {words.limits(row)}.") for row in (KL, changed))
    assert [step.at for step in before.steps] == [None, 0.015, 0.03]
    assert [step.at for step in after.steps] == [None, 0.02, 0.05]
    assert after.about == "Limits: yellow above 0.02, red above 0.05."


def _judged() -> dict[str, Metric]:
    return {prometheus_name(row): row for row in of_scope(Scope.POLICY) if words.steps_of(row)}


@pytest.mark.parametrize("board", [Board.RUN, Board.FLEET], ids=lambda board: board.uid)
def test_shipped_thresholds_are_the_rows(board: Board) -> None:
    """Wherever a judged row of the policy is drawn, its limits are the catalogue's."""
    rows, seen = _judged(), 0
    for panel in json.loads((ROOT / board.file).read_text(encoding="utf-8"))["panels"]:
        names = {
            one.name for target in panel["targets"] for one in promql.selected(promql.filled(target["expr"]))
        }
        row = rows.get(next(iter(names))) if len(names) == 1 else None
        if row is None:
            continue
        seen += 1
        drawn = [
            (step["value"], step["color"]) for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        ]
        assert drawn == [(step.at, step.colour) for step in words.steps_of(row)]

    assert seen == (8 if board is Board.RUN else 0)


def test_every_judged_row_is_on_the_timeline() -> None:
    """What can be yellow or red has a lane."""
    assert {"kl_divergence", "entropy", "grad_norm", "update_time"} <= set(JUDGED)
    assert set(JUDGED) == {
        row.short for row in of_scope(Scope.POLICY) if row.limits.warning or row.limits.critical
    }


def test_every_bound_has_a_word() -> None:
    """Codes are one to one, and what is more urgent has a larger one."""
    assert set(words.BOUND_CODES) == {row.state.label for row in BOUNDS}
    assert sorted(words.BOUND_CODES.values()) == list(range(len(BOUNDS)))
    assert words.BOUND_WORDS[words.BOUND_CODES["throttled"]].text == "THROTTLED"
    assert words.BOUND_CODES["unknown"] == 0


def test_equal_to_a_limit_reads_as_what_is_above_it() -> None:
    """Grafana's steps begin at their value, which for a side below is what the row means too."""
    assert Side.BELOW.crossed(0.1, 0.1) is False
    assert words.steps_of(replace(KL, limits=below(None, 0.1)))[-1] == Step(at=0.1, colour=G)
