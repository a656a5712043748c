"""The corpus is whole: every fault has a label, enough of each kind, and no bound is loosened."""

from overwatch.catalog import BY_NAME, Scope
from overwatch.simulate import FAULTS
from overwatch.simulate.corpus import CASES, Class


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


def test_a_fault_says_what_it_must_be_found_as() -> None:
    """Only a harmless one expects nothing."""
    assert {case.kind for case in CASES if not case.expects} == {Class.HARMLESS}
    shorts = {row.short for row in BY_NAME.values() if row.scope is Scope.POLICY}
    rows = {code.removeprefix("policy-").replace("-", "_") for case in CASES for code in case.expects}
    assert {"kl_divergence", "grad_norm"} <= rows & shorts
