"""`overwatch query`: what a filter means, in each format, and what is reported of what cannot be read."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from overwatch.analyse.export import TABLES
from overwatch.analyse.rows import Row, csv_line, matching, rows
from overwatch.analyse.run_history import RunHistory
from tests.overwatch.simulate.runs import overwatch


def _found(run_history: RunHistory, text: str) -> list[Row]:
    return list(matching(rows(run_history), text))


def test_severities_are_compared_by_their_order(run_history: RunHistory) -> None:
    """`>=` takes the level itself, `>` what is worse, `=` only the level."""
    levels = {row.severity for row in _found(run_history, "severity>=warning")}

    assert levels == {"warning", "critical"}
    assert {row.severity for row in _found(run_history, "severity>warning")} == {"critical"}
    assert {row.severity for row in _found(run_history, "severity=warn")} == {"warning"}
    assert {row.severity for row in _found(run_history, "severity<warning")} == {"info"}


def test_terms_are_joined_and_turned_around(run_history: RunHistory) -> None:
    """Of one env, only what is no crash."""
    env = next(row.env for row in _found(run_history, "kind=env_crashed"))
    both = _found(run_history, f"env={env} severity=critical")
    without = _found(run_history, f"env={env} severity=critical !kind=env_crashed")

    assert {row.env for row in both} == {env}
    assert len(without) < len(both)
    assert all(row.kind != "env_crashed" for row in without)


def test_a_row_without_an_answer_does_not_meet_a_term(run_history: RunHistory) -> None:
    """Findings have no slot, events no score."""
    assert {row.what for row in _found(run_history, "slot=r0c0")} == {"event"}
    assert {row.what for row in _found(run_history, "score>0")} == {"env"}


def test_a_lane_is_meant_by_name_or_number(run_history: RunHistory) -> None:
    """`gpu=1` is `gpu=gpu1`."""
    assert _found(run_history, "gpu=1") == _found(run_history, "gpu=gpu1") != []


def test_times_are_seconds_of_the_run(run_history: RunHistory) -> None:
    """In between, and in order."""
    times = [row.at for row in _found(run_history, "at>=10 at<12")]

    assert times
    assert times == sorted(times)
    assert all(10 <= at < 12 for at in times)


def test_words_are_searched_for_in_all_texts(run_history: RunHistory) -> None:
    """In texts, hints and fields."""
    assert _found(run_history, "fan curve")
    assert all("gradient" in str(row).lower() for row in _found(run_history, '"gradient ratio"'))


def test_rows_are_printed_as_text_json_and_csv(storm: Path) -> None:
    """As many in each, with the same words."""
    requested = ("query", storm / "snapshots.jsonl", "what=finding severity=critical")
    lines = overwatch(*requested).stdout.splitlines()
    reported = [json.loads(line) for line in overwatch(*requested, "--format", "json").stdout.splitlines()]
    cells = list(csv.DictReader(io.StringIO(overwatch(*requested, "--format", "csv").stdout)))

    assert len(lines) == len(reported) == len(cells) > 0
    for line, row, cell in zip(lines, reported, cells, strict=True):
        assert row["text"] in line
        assert (cell["text"], cell["kind"], float(cell["at"])) == (row["text"], row["kind"], row["at"])


def test_what_is_left_out_is_reported(storm: Path, tmp_path: Path) -> None:
    """By `--limit`; and a file holds what is not."""
    out = tmp_path / "new" / "rows.txt"
    result = overwatch("query", storm / "snapshots.jsonl", "--limit", "3", "-o", out)

    assert result.exit_code == 0
    assert "more rows were left out" in result.stderr
    assert len(out.read_text().splitlines()) == 3


def test_finding_nothing_is_status_1(storm: Path) -> None:
    """And is reported."""
    result = overwatch("query", storm / "snapshots.jsonl", "env=4000")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "env=4000" in result.stderr


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("sevrity>=warning", "did you mean severity=?"),
        ("severity>=bad", "no severity bad; one of debug, info, warning, critical"),
        ("severity>=", "severity>= needs a value"),
        ("env=x", "env=x is no env id"),
        ("at=3", "at is compared; did you mean at>?"),
        ("kind>3", "kind is not a number"),
        ("!", "needs a term after it"),
        ("x" * 600, "at most 500 characters"),
    ],
)
def test_a_filter_that_cannot_be_read_is_status_2(storm: Path, text: str, stated: str) -> None:
    """With the term and what was meant, before anything is read."""
    result = overwatch("query", storm, text)

    assert result.exit_code == 2
    assert stated in result.stderr
    assert "Traceback" not in result.output


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
