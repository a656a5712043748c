"""Every code that any rule can raise has its text, and every text a rule."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import overwatch.diagnose
from overwatch.catalog import ROWS, Metric
from overwatch.catalog.bounds import ROWS as BOUNDS
from overwatch.catalog.runbooks import ALL, RUNBOOKS, Runbook, has_runbook, row_code, runbook_of_row
from overwatch.generate.runbooks_page import is_judged, runbooks_page

RULES = Path(overwatch.diagnose.__file__).parent
THROTTLES = {"thermal-throttle", "power-throttle", "clock-low"}
"""Made of the cause's name."""
MANY = {f"{code}-many" for code in ("env-crashed", "env-non-finite", "env-stalled")}
"""Made of the code of one."""
SHARED = {row.shared.code for row in BOUNDS if row.shared is not None}
"""Of the table of verdicts."""
NO_CODES = {"policy-"}
JUDGED = [row for row in ROWS if is_judged(row)]


def _words(path: Path) -> Iterator[str]:
    """Words of a module that may be codes: what `code=` or a constant named so holds, and tuples of words."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.keyword(arg="code", value=ast.Constant(value=str(word))):
                yield word
            case ast.AnnAssign(target=ast.Name(), value=ast.Constant(value=str(word))) if "-" in word:
                yield word
            case ast.Tuple(elts=[ast.Constant(value=str(word)), *_]) if "-" in word:
                yield word
            case ast.IfExp(body=ast.Constant(value=str(word)), orelse=ast.Constant(value=str(other))):
                yield from (code for code in (word, other) if "-" in code)


def _codes() -> set[str]:
    found = {word for path in RULES.rglob("*.py") for word in _words(path)}
    plain = {word for word in found if word.replace("-", "").isalpha() and word.islower()}
    return (plain | THROTTLES | MANY | SHARED) - NO_CODES


def test_every_code_has_its_text() -> None:
    """A rule that is added is refused here until what to do is written down."""
    assert {code for code in _codes() if not has_runbook(code)} == set()


def test_every_text_has_its_rule() -> None:
    """No text is left of a rule that is gone."""
    stated = {
        node.value
        for path in RULES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }

    assert set(RUNBOOKS) - stated - THROTTLES - MANY - SHARED == set()


@pytest.mark.parametrize("entry", [*ALL.values(), *map(runbook_of_row, JUDGED)], ids=lambda e: e.code)
def test_a_text_states_what_it_means_how_to_confirm_it_and_what_to_do(entry: Runbook) -> None:
    """Three whole sentences or more."""
    for text in (entry.means, entry.confirm, entry.act):
        assert text[0].isupper(), text
        assert text[-1] in ".?", text
        assert len(text.split()) >= 3 or entry.act == text, text


@pytest.mark.parametrize("row", JUDGED, ids=lambda row: row.short)
def test_every_judged_row_has_a_heading_to_point_at(row: Metric) -> None:
    """An alert about it leads to its text."""
    assert f"\n## {row_code(row)}\n" in runbooks_page()


def test_headings_are_unique() -> None:
    """One place a code."""
    headings = [line for line in runbooks_page().splitlines() if line.startswith("## ")]

    assert len(headings) == len(set(headings)) == len(ALL) + len(JUDGED)
