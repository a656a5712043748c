"""CSV that a spreadsheet takes for text and numbers, and that gives back what was written."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overwatch.analyse.export import TABLES
from overwatch.analyse.separated import csv_line
from tests.overwatch.simulate.runs import overwatch

FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20A",
)
HOSTILE = '=HYPERLINK("http://evil","x")'


def _read(line: str) -> list[str]:
    (cells,) = csv.reader(io.StringIO(line, newline=""))
    return cells


def _text(cell: str) -> str:
    """The text of a cell, as docs/analyse.md has it."""
    return cell[1:] if re.match("'+[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", cell) else cell


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_begins_a_formula(text: str) -> None:
    """Whichever character begins it; neither after a separator within it."""
    assert _read(csv_line([text])) == ["'" + text]
    assert csv_line([f"a;{text}"]).startswith('"')
    assert csv_line([f"a\t{text}"]).startswith('"')


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2))
@example(["'=1", "''=1", "'", "'a", '"', " "])
def test_what_was_written_is_read_back(texts: list[str]) -> None:
    """Every text, whatever it begins with."""
    assert list(map(_text, _read(csv_line(texts)))) == texts


def test_numbers_stay_numbers() -> None:
    """Negative ones too, with all their digits; what is missing is empty."""
    assert csv_line([-1.5, 1e-300, -3, 0.1 + 0.2, None, 0]) == "-1.5,1e-300,-3,0.30000000000000004,,0"


def test_a_run_named_as_a_formula_is_text_in_every_table(tmp_path: Path) -> None:
    """In all that `export` and `query` write as CSV."""
    folder = tmp_path / "run"
    made = overwatch("simulate", "--run-id", HOSTILE, "--seconds", "20", "--fault", "nan@5", "--out", folder)
    assert made.exit_code == 0, made.stderr
    printed = [overwatch("query", folder, "--format", "csv").stdout]
    printed += (
        overwatch("export", folder, "--to", "csv", "--table", table, "-o", "-").stdout for table in TABLES
    )

    for text in printed:
        head, *lines = csv.reader(io.StringIO(text, newline=""))
        assert lines, head
        assert {line[0] for line in lines} == {"'" + HOSTILE}
