"""Every fault of the corpus is found as what it is, in time; healthy runs have nothing critical."""

from pathlib import Path

import numpy as np
import pytest

from overwatch.catalog import BY_NAME, Scope
from overwatch.simulate import FAULTS
from tests.calibration.corpus import CASES, PAGE, Case, Class, Result, corpus_page, run

ROOT = Path(__file__).parents[2]
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
    """Within its class's bound, with nothing found before it began."""
    result = _run(_named(name))

    assert result.in_time, result
    assert result.before == ()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_whole_corpus() -> None:
    """All of it in time, no critical and no warning about a healthy run, and the page states it."""
    results = [_run(case) for case in CASES]

    assert [result.case.label for result in results if not result.in_time] == []
    assert [result.case.label for result in results if result.before] == []
    assert (ROOT / PAGE).read_text(encoding="utf-8") == corpus_page(results)


def test_the_page_has_every_case() -> None:
    """A case that is added is refused here until `make corpus` has run."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")

    assert [case.label for case in CASES if f"| `{case.label}` |" not in page] == []
    assert "never" not in page


def test_a_fault_that_is_not_found_is_reported_as_late() -> None:
    """What cannot be found, because nothing happens, is late; so the report can fail."""
    case = Case(name="learning-rate-drop", kind=Class.POLICY, expects=("policy-kl-divergence",), seconds=60)
    result = _run(case)

    assert (result.found_s, result.in_time) == (None, False)
    assert "late: learning-rate-drop" in corpus_page([result])


def test_every_fault_is_a_case_and_every_case_a_fault() -> None:
    """A fault that the simulator learns needs a label, once."""
    named = [case.name for case in CASES if case.name]

    assert sorted(named) == sorted(FAULTS)


def test_there_are_enough_of_both() -> None:
    """At least twenty-five faults, and five healthy runs that are noisy besides the quiet ones."""
    healthy = [case for case in CASES if case.kind is Class.HARMLESS]

    assert len(CASES) - len(healthy) >= 25
    assert sum(bool(case.name) for case in healthy) >= 5


def test_the_bounds_are_the_promised_ones() -> None:
    """Two seconds for facts, ten for machines, five updates for the policy, fifty for a slow drift."""
    promised = {Class.FACT: 2, Class.MACHINE: 10, Class.LEAK: 10, Class.POLICY: 5, Class.DRIFT: 50}

    assert {kind: kind.bound for kind in promised} == promised
    assert Class.HARMLESS.bound is None


def test_a_fault_states_what_it_must_be_found_as() -> None:
    """Only a harmless one expects nothing."""
    assert {case.kind for case in CASES if not case.expects} == {Class.HARMLESS}
    shorts = {row.short for row in BY_NAME.values() if row.scope is Scope.POLICY}
    rows = {code.removeprefix("policy-").replace("-", "_") for case in CASES for code in case.expects}
    assert {"kl_divergence", "grad_norm"} <= rows & shorts
