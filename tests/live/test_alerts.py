"""Every alert fires from a real program with a planted fault: not by the simulator, nor by a number set.

Contracts hold the table whole: an alert without a row, a row without an alert, and the page of the docs.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from overwatch.catalog.alerts import PREFIX
from overwatch.generate.rules import Plan, steady_alerts, windowed_alerts
from tests.live.faults import COLLECTOR, HEALTHY, LONG, PROOFS, WAITS, Proof
from tests.live.flying import fired, fly, pages, tallied
from tests.live.page import PAGE, text

SAMPLE = ("failing", "masked", "crashed", "starved")
"""Programs that are run by `make test`; all of them take minutes."""


def _names() -> list[str]:
    rules = [*steady_alerts(Plan()), *windowed_alerts(Plan())]
    return [rule.name.removeprefix(PREFIX) for rule in rules]


def test_every_alert_has_a_program_or_states_what_it_waits_for() -> None:
    """An alert that nothing here fires may be one that nothing can fire."""
    proved = [alert for proof in (*PROOFS, *LONG) for alert in proof.alerts]

    assert sorted([*proved, *WAITS, *COLLECTOR]) == sorted(_names())


def test_programs_have_names_of_their_own() -> None:
    """A name is the id of a run."""
    names = [proof.program.name for proof in (*PROOFS, *LONG)] + [HEALTHY.name]

    assert len(set(names)) == len(names)


def test_the_page_is_what_the_table_states() -> None:
    """`python -m tests.live.page` writes it."""
    assert PAGE.read_text(encoding="utf-8") == text()


def _proven(proofs: Sequence[Proof], folder: Path) -> set[tuple[str, str]]:
    """What fired, of which nothing that is to be proved is missing."""
    recording, left_out = fly([*(proof.program for proof in proofs), HEALTHY], folder)
    found = fired(*pages(recording), folder)
    wanted = {
        (PREFIX + alert, proof.program.name)
        for proof in proofs
        if proof.program.name not in left_out
        for alert in proof.alerts
    }

    missing = sorted(wanted - found)
    assert not missing, missing
    rows = {(row, proof.program.name) for proof in proofs for row in proof.rows}
    assert rows <= tallied(recording), rows - tallied(recording)
    return found


@pytest.mark.timeout(600)
def test_a_sample_of_alerts_fires_from_real_programs(tmp_path: Path) -> None:
    """A trainer of ours that fails, and three others through the SDK; one without a fault fires none."""
    sample = [proof for proof in PROOFS if proof.program.name in SAMPLE]
    found = _proven(sample, tmp_path)

    assert len(sample) == len(SAMPLE)
    assert {alert for alert, run in found if run == HEALTHY.name} == set()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_alert_fires_from_a_real_program(tmp_path: Path) -> None:
    """And the program without a fault fires none."""
    found = _proven(PROOFS, tmp_path)

    assert {alert for alert, run in found if run == HEALTHY.name} == set()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_alerts_that_are_judged_over_minutes_fire_from_real_programs(tmp_path: Path) -> None:
    """A storm of culls needs a usual rate before it, and a run that became slow its best stretches."""
    _proven(LONG, tmp_path)
