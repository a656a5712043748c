"""The verdicts there are: each has a row, each rule's verdict is one of them, in the same order."""

from overwatch.catalog.bounds import BY_STATE, ROWS, BoundState
from overwatch.diagnose.anomaly import AnomalyLimits
from overwatch.diagnose.bounds import RULES
from overwatch.diagnose.fleet import fleet_of
from overwatch.diagnose.machine_findings import lane_problems
from tests import fakes
from tests.overwatch.diagnose.test_bounds import EXAMPLES


def test_every_verdict_has_a_row_and_a_rule() -> None:
    """In the order in which rules are tried, as the reference shows them."""
    stated = [rule(EXAMPLES[rule.__name__][0], AnomalyLimits()) for rule in RULES]
    states = [BoundState(bound.state) for bound in stated if bound is not None]

    assert set(BY_STATE) == set(BoundState)
    assert list(dict.fromkeys(states)) == [row.state for row in ROWS]


def test_labels_are_words_of_metrics() -> None:
    """Lower case, each of its own, nothing that a label would not hold."""
    labels = [state.label for state in BoundState]

    assert len(set(labels)) == len(labels)
    assert all(label.replace("_", "").isalpha() and label == label.lower() for label in labels)


def test_a_verdict_that_is_a_fault_is_marked() -> None:
    """What makes a finding is a warning at least; what is as it should be has no mark."""
    for rule in RULES:
        bound = rule(EXAMPLES[rule.__name__][0], AnomalyLimits())
        assert bound is not None
        if BY_STATE[BoundState(bound.state)].fault:
            assert bound.mark in ("!", "!!")


def test_every_verdict_that_is_a_fault_makes_one_finding() -> None:
    """Of a lane alone, or of all lanes that have it; a fault without a report is a row without either."""
    fleet = fleet_of(fakes.folded([fakes.envs(fakes.START_NS, (0,), index=1, step_time=[0.01])]))
    for rule in RULES:
        lane = EXAMPLES[rule.__name__][0]
        bound = rule(lane, AnomalyLimits())
        assert bound is not None
        found = list(lane_problems(fleet, [lane], {lane.name: bound}, AnomalyLimits()))
        assert len(found) == BY_STATE[BoundState(bound.state)].fault, bound.state
