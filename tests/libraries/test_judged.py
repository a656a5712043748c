"""The page of judged trainings is what was found, and each of its programs can be made of an example."""

import pytest

from tests.libraries.examples import FOLDER, ROOT, names_of
from tests.libraries.judged import (
    BROKEN,
    CASES,
    HEALTHY,
    PAGE,
    Case,
    Found,
    Ran,
    is_healthy,
    is_learned,
    kept,
    page,
)


def _found(
    severity: str = "warning", code: str = "policy-kl-divergence", update: int = 9, **but: str
) -> Found:
    return Found(severity=severity, code=code, update=update, scope=but.get("scope", "policy"), message="")


def _ran(*findings: Found, updates: int = 50, reached: float | None = 1.0) -> Ran:
    return Ran(status=0, updates=updates, reached=reached, findings=list(findings))


def test_the_page_is_what_was_found() -> None:
    """A result that was kept is on the page, and a case that was never run is named as such."""
    assert PAGE.read_text(encoding="utf-8") == page(kept())


def test_the_page_is_in_the_navigation() -> None:
    """It is found from the list of pages."""
    assert PAGE.name in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_a_program_of_an_example(name: str) -> None:
    """Both of its programs compile and still report to Overwatch, and the two runs differ."""
    case = CASES[name]
    source = (FOLDER / f"{case.example}.py").read_text(encoding="utf-8")
    programs = {kind: case.program(source, kind) for kind in (HEALTHY, BROKEN)}

    assert all("overwatch" in " ".join(names_of(program)) for program in programs.values())
    assert programs[HEALTHY] != programs[BROKEN] or case.words != case.broken_words


def test_a_change_that_does_not_apply_is_an_error() -> None:
    """An example that was rewritten fails here, not as a run of another program."""
    case = Case(example="sb3", task="", reaches=0, changes={"rate": "lr"})

    assert case.program("rate = 1", HEALTHY) == "lr = 1"
    with pytest.raises(ValueError, match="'rate' stands 2 times in sb3"):
        case.program("rate = rate", HEALTHY)


def test_a_healthy_run_may_have_one_warning_in_a_hundred_updates() -> None:
    """And none that is critical, whatever is reported for information."""
    assert is_healthy(_ran(_found(), _found("info")))
    assert is_healthy(_ran(_found(), _found(), updates=200))
    assert not is_healthy(_ran(_found(), _found()))
    assert not is_healthy(_ran(_found("critical")))


def test_what_names_a_run_is_about_learning() -> None:
    """The first warning about the policy, not a process that ended and not what is only for information."""
    late, early = _found(update=12), _found(update=7)
    about = _found("info", update=1), _found("critical", "service-down", 2, scope="run")

    assert _ran(*about, late, early).named == early
    assert _ran(*about).named is None


def test_a_run_has_learned_at_the_known_level() -> None:
    """Of a loss less is better, and a row that never came is no level."""
    more, less = Case(example="", task="", reaches=5), Case(example="", task="", reaches=5, is_low=True)

    assert [is_learned(more, _ran(reached=level)) for level in (4.0, 5.0, None)] == [False, True, False]
    assert [is_learned(less, _ran(reached=level)) for level in (4.0, 6.0, None)] == [True, False, False]
