"""What `make quick` runs: the table names tests that are there, and a process is noticed without it."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.slowness import CPU_S, FOLDERS, TABLE, rows, table

pytest_plugins = ["pytester"]

ROOT: Final = Path(__file__).parents[2]

STARTERS: Final = """
import subprocess, sys, pytest

@pytest.fixture(scope="module")
def server():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_alone(): pass
def test_by_itself(): subprocess.run([sys.executable, "-c", ""], check=True)
def test_by_a_fixture(server): pass
def test_by_a_fixture_that_is_there_already(server): pass
@pytest.mark.slow
def test_marked(server): subprocess.run([sys.executable, "-c", ""], check=True)
"""


def _functions(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_names_a_test_and_a_reason() -> None:
    """A test that is renamed or removed leaves no row behind; folders that are slow as such need none."""
    for row, reason in table().items():
        module, _, name = row.partition("::")
        assert reason in {"cpu", "process"}, row
        assert not module.startswith(FOLDERS), row
        assert (ROOT / module).is_file(), f"{row}: no such module; remove it from tests/{TABLE.name}"
        assert not name or name in _functions(ROOT / module), f"{row}: no such test in tests/{TABLE.name}"


def test_what_was_measured_becomes_rows() -> None:
    """By CPU or process, a whole module at once, contracts by processes alone, and no folder of programs."""
    costs = {
        "tests/a/test_a.py::test_quick": CPU_S / 2,
        "tests/a/test_a.py::test_costly": CPU_S,
        "tests/a/test_b.py::test_one": 0.0,
        "tests/a/test_b.py::test_two": 2 * CPU_S,
        "tests/contracts/test_c.py::test_costly": 2 * CPU_S,
        "tests/contracts/test_c.py::test_process": 0.0,
        f"{FOLDERS[0]}test_d.py::test_program": 2 * CPU_S,
    }
    starters = {"tests/a/test_b.py::test_one", "tests/contracts/test_c.py::test_process"}

    assert rows(costs, starters) == {
        "tests/a/test_a.py::test_costly": "cpu",
        "tests/a/test_b.py": "process",
        "tests/contracts/test_c.py::test_process": "process",
    }


def test_a_quick_test_that_starts_a_process_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself or through a fixture that another test began; the error has the row to add."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("OVERWATCH_RECORD_SLOW", raising=False)
    pytester.makepyfile(test_it=STARTERS)
    words = ("-p", "tests.slowness", "-p", "no:randomly", "-p", "no:cacheprovider")
    result = pytester.runpytest_subprocess(*words, "-W", "ignore::pytest.PytestUnknownMarkWarning")

    result.assert_outcomes(passed=5, errors=3)
    named = {
        found[1]
        for line in result.outlines
        if (found := re.search(r"slow.txt: test_it.py::(\S+) process", line))
    }
    assert named == {"test_by_itself", "test_by_a_fixture", "test_by_a_fixture_that_is_there_already"}
