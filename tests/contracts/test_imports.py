"""Arrows point down; the contract that states it can fail."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.contracts import trees

ROOT = Path(__file__).parents[2]
CIRCLES: Final = (("overwatch_rl.weights.checking", "overwatch_rl.weights.subscriber"),)
"""Those that are still there."""


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
    ]
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _copy(folder: Path) -> None:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def test_the_tree_keeps_its_contract(tmp_path: Path) -> None:
    """The source as it is breaks no import contract."""
    _copy(tmp_path)

    result = _lint(tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr


def test_a_planted_upward_import_is_found(tmp_path: Path) -> None:
    """An import from the fold to a view turns the contract red."""
    _copy(tmp_path)
    target = tmp_path / "src/overwatch/state/arrays.py"
    target.write_text(target.read_text() + "\nimport overwatch.projection\n")

    result = _lint(tmp_path)

    assert result.returncode != 0
    assert "overwatch.state.arrays -> overwatch.projection" in result.stdout


def test_a_planted_torch_import_is_found(tmp_path: Path) -> None:
    """An import of torch in the tower turns the contract red."""
    _copy(tmp_path)
    target = tmp_path / "src/overwatch/codec.py"
    target.write_text(target.read_text() + "\nimport torch\n")

    result = _lint(tmp_path)

    assert result.returncode != 0
    assert "overwatch.codec -> torch" in result.stdout


def test_a_module_outside_of_the_layers_is_found(tmp_path: Path) -> None:
    """A new top-level module that no layer names turns the contract red."""
    _copy(tmp_path)
    (tmp_path / "src/overwatch/helpers.py").write_text('"""Not in any layer."""\n')

    result = _lint(tmp_path)

    assert result.returncode != 0
    assert "helpers" in result.stdout


def test_no_modules_import_one_another() -> None:
    """Nor do they through others, or for types alone: what is in a circle can be read only as a whole."""
    found = trees.circles(trees.modules())

    assert [tuple(ring) for ring in found] == list(CIRCLES)


def test_a_circle_is_found_through_a_third_module_and_for_types() -> None:
    """A module that is imported by the circle, or imports it, is not part of it."""
    texts = {
        "a": "from b import one",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import c",
        "c": "def late() -> None:\n    from a import two",
        "leaf": "",
        "top": "import a, leaf",
    }

    assert trees.circles({name: ast.parse(text) for name, text in texts.items()}) == [["a", "b", "c"]]
