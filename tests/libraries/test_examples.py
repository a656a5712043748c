"""Each example does as its page states: it ends by itself, its run completes, its numbers are recognised."""

import ast
import os
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.libraries import running
from tests.libraries.examples import MARK, Example, examples, names_of
from tests.libraries.page import kept

FOUND: Final = examples()
IN_CI: Final = {"plain", "gymnasium_vector", "sb3"}
"""Whose packages are in the project's own environment."""
MEASURED: Final = {one.name: one.rows for one in kept()}
each: Final = pytest.mark.parametrize(
    "example",
    [pytest.param(one, id=one.name, marks=[] if one.name in IN_CI else pytest.mark.long) for one in FOUND],
)


def test_ci_has_the_packages_of_those_that_it_runs() -> None:
    """A version that was raised in one place only would leave an example unrun."""
    assert {one.name: one.lacks for one in FOUND if one.name in IN_CI and one.lacks} == {}


@pytest.mark.timeout(running.LIMIT_S + 120)
@each
def test_an_example_is_a_run_that_completes(example: Example, tmp_path: Path) -> None:
    """Against a real collector: no critical finding at any time, and every row that was measured is there."""
    try:
        python = running.python_of(example)
    except running.UnfitError as error:
        if os.environ.get("OVERWATCH_REQUIRE_REAL"):
            raise
        pytest.skip(str(error))
    seen = running.watched([str(python), str(example.script)], python, tmp_path)

    assert seen.status == 0, seen.output[-3000:]
    assert seen.outcomes == {"completed"}
    assert "critical" not in seen.findings, seen.findings
    assert set(MEASURED.get(example.name, ())) <= seen.rows
    assert seen.rows or seen.envs


@pytest.mark.long
def test_what_pip_cannot_install_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the example and has pip's reason."""
    monkeypatch.setattr(running, "ENVIRONMENTS", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    needed = (Requirement("pufferlib==0.0.0"),)
    absent = Example(name="absent", script=tmp_path / "absent.py", requirements=needed)
    with pytest.raises(running.UnfitError, match=r"(?s)absent: .*pufferlib==0.0.0"):
        running.python_of(absent)


@pytest.mark.parametrize("example", FOUND, ids=lambda one: one.name)
def test_without_its_marked_lines_an_example_is_the_librarys_own(example: Example) -> None:
    """It compiles, names nothing of Overwatch, and still makes all of the library's own calls."""
    assert example.added >= 1
    bare, lines = names_of(example.bare), example.source.splitlines()
    assert [name for name in bare if "overwatch" in name.lower()] == []
    lost = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(example.source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in bare
        and lines[node.lineno - 1].rstrip().endswith(MARK)
    ]
    assert lost == []
