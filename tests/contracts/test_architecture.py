"""`docs/architecture.md` names layers, threads and files as they are."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.trees import SRC

ROOT: Final = SRC.parent
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS: Final = {
    contract["containers"][0]: contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"
}


def _section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("package", LAYERS)
def test_the_layers_are_those_of_the_contract(package: str) -> None:
    """Line by line, from the top."""
    blocks = re.findall(r"```\n(.*?)\n```", _section("Layers"), re.DOTALL)
    drawn = {lines[0]: [line.strip() for line in lines[1:]] for lines in map(str.splitlines, blocks)}

    assert drawn[package] == LAYERS[package]


def _thread_names() -> set[str]:
    """Names that the tower's code gives to threads, where it writes them."""
    found = set()
    for path in (SRC / "overwatch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Thread", "Periodic")):
                named = [word.value for word in node.keywords if word.arg == "name"]
                first = node.args[:1] if ast.unparse(node.func) == "Periodic" else []
                found |= {str(one.value) for one in (*named, *first) if isinstance(one, ast.Constant)}
    return found


OF_COMMANDS: Final = {"sender", "signals"}
"""Threads of `overwatch simulate` and of whatever waits for a signal."""


def test_every_thread_is_on_the_page() -> None:
    """A thread that is started by a name has a row, and a row names one that is started."""
    rows = re.findall(r"^\|[^|]*\| `([a-z-]+)` \|", _section("Processes and threads"), re.MULTILINE)

    assert set(rows) == _thread_names() - OF_COMMANDS
    assert len(rows) == len(set(rows))


PLACES: Final = re.findall(r"`(overwatch(?:_rl)?/[\w/.]+)(?::(\w+))?`", PAGE)


@pytest.mark.parametrize(("place", "name"), PLACES)
def test_every_place_is_there(place: str, name: str) -> None:
    """A file or folder of the source, with the name at its top level where one is given."""
    path: Path = SRC / place
    assert path.exists()
    if not name:
        return
    defined = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined.add(node.name)
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        defined |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert name in defined


def test_the_ten_changes_have_a_row_each() -> None:
    """With at least one place in the source."""
    rows = [line for line in _section("Where a change goes").splitlines() if line.startswith("| a")]

    assert len(rows) == 10
    assert all(re.search(r"`overwatch(_rl)?/", row) for row in rows)
