"""`overwatch query --sql`: the tables of an export, asked with SQL."""

import csv
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from overwatch.analyse.export import TABLES, write_csv
from overwatch.analyse.rows import rows
from overwatch.analyse.run_history import RunHistory
from overwatch.analyse.sql import answer
from tests.overwatch.simulate.runs import overwatch


@pytest.mark.parametrize("table", TABLES)
def test_each_table_holds_what_the_export_writes(run_history: RunHistory, table: str) -> None:
    """Row by row and column by column, what is missing included."""
    text = io.StringIO()
    count = write_csv(text, [run_history], table, is_guarded=False)
    exported = list(csv.reader(io.StringIO(text.getvalue())))
    names, found = answer([run_history], f"from {table}")

    assert len(found) == count > 1
    assert list(names) == exported[0]
    for row, line in zip(found, exported[1:], strict=True):
        shown = [
            "" if value is None else repr(value) if isinstance(value, float) else str(value) for value in row
        ]
        assert shown == line


def test_numbers_are_numbers_and_what_is_missing_is_null(run_history: RunHistory) -> None:
    """A text stays as it was, be it a formula, with quotes, over two lines, or like a number."""
    kinds = {row.kind for row in rows(run_history, ("finding",))}
    hostile = '=1+1, "x"\n007 ✈ \\n'
    for found in run_history.found.by_key.values():
        found.finding = msgspec.structs.replace(found.finding, message=hostile)
    _, reported = answer(
        [run_history], 'select distinct text, kind, typeof("at"), typeof(env), slot from findings'
    )

    assert {row[1] for row in reported} == kinds
    assert {row[0] for row in reported} == {hostile}
    assert {row[2:] for row in reported} == {("DOUBLE", "BIGINT", None)}


def test_runs_of_a_folder_are_kept_apart(storm: Path, calm: Path, tmp_path: Path) -> None:
    """All of them without `--run`, one with it."""
    for name, run in (("storm", storm), ("calm", calm)):
        (tmp_path / name).symlink_to(run, target_is_directory=True)
    both = tmp_path / "both.jsonl"
    both.write_bytes((storm / "snapshots.jsonl").read_bytes() + (calm / "snapshots.jsonl").read_bytes())
    statement = ("--sql", "select distinct run from metrics order by run", "--format", "json")

    all_runs = overwatch("query", both, *statement).stdout.splitlines()
    assert [json.loads(row) for row in all_runs] == [{"run": "calm"}, {"run": "storm"}]
    assert overwatch("query", both, *statement, "--run", "calm").stdout.splitlines() == ['{"run":"calm"}']


@pytest.mark.parametrize(
    ("statement", "status", "stated"),
    [
        ("select * from nowhere", 2, "nowhere"),
        ("selekt", 2, "syntax error"),
        ("select 1 where false", 1, "no rows"),
        ("create table t (a int)", 1, "no rows"),
    ],
)
def test_what_is_wrong_with_a_statement_is_named(
    storm: Path, statement: str, status: int, stated: str
) -> None:
    """In DuckDB's own words, with no traceback."""
    result = overwatch("query", storm / "snapshots.jsonl", "--sql", statement)

    assert (result.exit_code, stated in result.stderr) == (status, True)
    assert "Traceback" not in result.output


def test_text_has_columns_and_a_limit(storm: Path) -> None:
    """Numbers to the right; what was left out is counted."""
    statement = "select code, n from (values ('a', 5), ('bcd', 10), ('e', 7)) t(code, n)"
    result = overwatch("query", storm / "snapshots.jsonl", "--sql", statement, "--limit", "2")

    assert result.stdout.splitlines() == ["code   n", "a      5", "bcd   10"]
    assert "1 more rows" in result.stderr


def test_without_duckdb_the_extra_is_named(storm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a filter beside a statement is bad usage."""
    assert overwatch("query", storm, "env=1", "--sql", "select 1").exit_code == 2
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = overwatch("query", storm / "snapshots.jsonl", "--sql", "select 1")

    assert result.exit_code == 2
    assert 'pip install "esper-overwatch[sql]"' in result.stderr
