"""A program that is compiled again while it trains: a finding with its count and its reason."""

import pytest

from overwatch.catalog.compiling import COMPILE
from overwatch.events import LogLine, Severity
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.watched import Rows, Watched

WHY = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"


def risen(*updates: int) -> Rows:
    """One compilation more in each of these updates."""
    return lambda n: {"recompiles": float(sum(number <= n for number in updates))}


def test_a_recompile_is_info_with_its_count_and_its_reason() -> None:
    """It is shown for five updates."""
    run = Watched().updates(range(1, 30), risen())
    assert run.opened == {}
    fields = {"reason": WHY, "function": "forward"}
    at = START_NS + 30 * SECOND
    run.emit(LogLine(at=at, severity=Severity.INFO, message="", subsystem=COMPILE, fields=fields))
    run.updates(range(30, 32), risen(30))
    problem = run.now["recompiles"].problem

    assert run.severities() == {"recompiles": "info"}
    assert problem.message == "1 recompile after warm-up, in 1 of the last 5 updates"
    assert problem.factors == (f"forward: {WHY}",)
    run.updates(range(32, 36), risen(30))
    assert run.now == {}


def test_recompiles_in_most_updates_are_a_warning() -> None:
    """Three of five, without a reason where none was sent."""
    run = Watched().updates(range(1, 35), risen(30, 32, 34))
    problem = run.now["recompiles"].problem

    assert run.severities() == {"recompiles": "warning"}
    assert problem.message == "3 recompiles after warm-up, in 3 of the last 5 updates"
    assert problem.factors == ()


@pytest.mark.parametrize("rows", [risen(), lambda _: {}], ids=["none came", "not sent"])
def test_a_program_that_is_compiled_once_has_no_finding(rows: Rows) -> None:
    """0 is no finding, and neither is silence."""
    assert Watched().updates(range(1, 40), rows).opened == {}


def test_a_program_that_begins_anew_has_no_finding_for_what_was_before() -> None:
    """Counts that fall are those of another process."""
    rows: Rows = lambda n: {"recompiles": 4.0 if n < 20 else 0.0}  # noqa: E731 as a table
    assert Watched().updates(range(1, 40), rows).opened == {}
