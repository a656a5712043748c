"""The verdicts there are: each has a row, each rule's verdict is one of them, in the same order."""

import pytest

from overwatch.catalog.bounds import BY_STATE, ROWS, BoundState
from overwatch.diagnose.anomaly import AnomalyLimits
from overwatch.diagnose.bounds import judge
from overwatch.diagnose.fleet import fleet_of
from overwatch.diagnose.lanes import LaneFacts
from overwatch.diagnose.machine_findings import lane_problems
from tests import fakes
from tests.overwatch.diagnose.test_bounds import EXAMPLES

LANES = [lane for lane, _state, _why in EXAMPLES.values()]


def test_every_verdict_has_a_row_and_an_example() -> None:
    """As the reference shows them; each example is judged as its state."""
    states = {BoundState(judge([lane], AnomalyLimits())[lane.name].state) for lane in LANES}

    assert set(BY_STATE) == set(BoundState) == states
    assert len(ROWS) == len(BY_STATE)


def test_labels_are_words_of_metrics() -> None:
    """Lower case, each of its own, nothing that a label would not hold."""
    labels = [state.label for state in BoundState]

    assert len(set(labels)) == len(labels)
    assert all(label.replace("_", "").isalpha() and label == label.lower() for label in labels)


@pytest.mark.parametrize("lane", LANES, ids=list(EXAMPLES))
def test_a_verdict_that_is_a_fault_is_marked_and_makes_one_finding(lane: LaneFacts) -> None:
    """Of a lane alone, or of all lanes that have it; a fault without a report is a row without either."""
    fleet = fleet_of(fakes.folded([fakes.envs(fakes.START_NS, (0,), index=1, step_time=[0.01])]))
    bounds = judge([lane], AnomalyLimits())
    bound = bounds[lane.name]
    fault = BY_STATE[BoundState(bound.state)].fault

    assert bound.mark in ("!", "!!") or not fault
    assert len(list(lane_problems(fleet, [lane], bounds, AnomalyLimits(), ()))) == fault
