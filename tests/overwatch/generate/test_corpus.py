"""Every labelled fault is found as what it is and in time; nothing is called critical in a healthy run."""

from pathlib import Path

import numpy as np
import pytest

from overwatch.generate.corpus import PAGE, Result, corpus_page, run
from overwatch.simulate.corpus import CASES, Case, Class

ROOT = Path(__file__).parents[3]
SOON = (
    "env-crash",
    "silent-nan",
    "kl-high",
    "steps-too-large",
    "entropy-collapse",
    "gpu-off-bus",
    "early-stops",
)
"""A few of each kind, for every day; `make long` does them all."""


def _run(case: Case) -> Result:
    with np.errstate(all="ignore"):
        return run(case)


def _named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize("name", SOON)
def test_a_fault_is_found_in_time(name: str) -> None:
    """Within its class's bound, with nothing said before it began."""
    result = _run(_named(name))

    assert result.in_time, result
    assert result.before == ()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_whole_corpus() -> None:
    """All of it in time, no critical and no warning about a healthy run, and the page says so."""
    results = [_run(case) for case in CASES]

    assert [result.case.label for result in results if not result.in_time] == []
    assert [result.case.label for result in results if result.before] == []
    assert (ROOT / PAGE).read_text(encoding="utf-8") == corpus_page(results)


def test_the_page_has_every_case() -> None:
    """A case that is added is refused here until `make corpus` has run."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")

    assert [case.label for case in CASES if f"| `{case.label}` |" not in page] == []
    assert "never" not in page


def test_a_fault_that_is_not_found_is_told_as_late() -> None:
    """What cannot be found, because nothing happens, is late; so the report can fail."""
    case = Case(name="learning-rate-drop", kind=Class.POLICY, expects=("policy-kl-divergence",), seconds=60)
    result = _run(case)

    assert (result.found_s, result.in_time) == (None, False)
    assert "late: learning-rate-drop" in corpus_page([result])
