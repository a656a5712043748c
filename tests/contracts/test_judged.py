"""Every row of the catalogue and every kind of event is judged, or left alone for a written reason."""

from typing import get_args

import pytest

from overwatch.catalog import ROWS, Metric, Scope
from overwatch.catalog.graph import has_limits
from overwatch.catalog.runbooks import has_runbook
from overwatch.diagnose.signals import CREEPING
from overwatch.events import Event
from tests.contracts.unjudged import EVENTS, UNJUDGED


def _named(row: Metric) -> str:
    return row.short if row.scope is Scope.POLICY else f"{row.scope.value} {row.short}"


def _is_judged(row: Metric) -> bool:
    """Whether it has limits, is watched for drift, or a rule reads it."""
    read = any(fed.startswith(("finding:", "bound:")) for fed in row.feeds)
    return read or has_limits(row) or any(watched.row is row for watched in CREEPING)


@pytest.mark.parametrize("row", ROWS, ids=_named)
def test_a_row_is_judged_or_has_a_reason_why_not(row: Metric) -> None:
    """One of both: a reason for a row that is judged is out of date."""
    assert _is_judged(row) is not (_named(row) in UNJUDGED)


def test_reasons_are_sentences_about_rows_that_there_are() -> None:
    """A row that is gone takes its reason with it."""
    assert set(UNJUDGED) <= {_named(row) for row in ROWS}
    assert all(reason.endswith(".") and len(reason.split()) > 5 for reason in UNJUDGED.values())


def test_every_kind_of_event_has_a_finding_or_a_reason() -> None:
    """By its tag; each finding has a text that helps."""
    tags = {kind.__struct_config__.tag for kind in get_args(Event)}

    assert set(EVENTS) == tags
    for tag, row in EVENTS.items():
        assert bool(row.findings) is not bool(row.why_not), tag
        assert all(has_runbook(code) for code in row.findings), tag
