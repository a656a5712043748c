"""What only Linux has is asked for in one module: no path of its kernel is named anywhere else.

Its functions are held by `make types`, which checks the whole program for macOS too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
ONLY = SOURCE / "overwatch/platform.py"
OF_LINUX = ("/proc", "/sys/", "/dev/shm", "/run/")


def _named(path: Path) -> Iterator[str]:
    """Texts of a module that begin as such a path; what a text explains is no path."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Constant(value=str(text)) if text.startswith(OF_LINUX) and " " not in text:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}: {text}"


def test_no_other_module_names_a_path_of_linux() -> None:
    """Whoever needs one asks `overwatch.platform`, where there is something in its place."""
    found = [name for path in SOURCE.rglob("*.py") if path != ONLY for name in _named(path)]
    assert not found
    assert list(_named(ONLY))
