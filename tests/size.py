"""How large the source is, and how readable: `python -m tests.size [FOLDER …]`, of `src/overwatch` if none.

Counts lines of Python, pages of a web front apart. A smaller number is worth nothing where lines grow longer
or words beside the code go, so both are printed beside it.
"""

import ast
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SMALL: Final = 60
"""Files below so many lines are counted: too many of them hide where things are."""


def _sources(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if "web" not in path.relative_to(folder).parts]


def _functions(tree: ast.AST) -> Iterable[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def measured(folder: Path) -> dict[str, float]:
    """The figures of a folder; lengths in characters and lines, shares of 1."""
    texts = [path.read_text(encoding="utf-8") for path in _sources(folder)]
    lines = [line for text in texts for line in text.splitlines()]
    written = [line for line in lines if line.strip()]
    functions = [one for text in texts for one in _functions(ast.parse(text))]
    lengths = sorted((one.end_lineno or one.lineno) - one.lineno + 1 for one in functions)
    return {
        "files": len(texts),
        f"files below {SMALL} lines": sum(len(text.splitlines()) < SMALL for text in texts),
        "lines": len(lines),
        "mean length of a line": statistics.mean(map(len, written)),
        "functions": len(functions),
        "documented functions, share": statistics.mean(
            ast.get_docstring(one) is not None for one in functions
        ),
        "lines of a function, median": statistics.median(lengths),
        "lines of a function, 95th percentile": lengths[int(len(lengths) * 0.95)],
        "lines that are comments": sum(line.lstrip().startswith("#") for line in lines),
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or ["src/overwatch"]:
        print(name)
        for what, figure in measured(Path(name)).items():
            print(f"  {what}: {figure:,.3g}" if figure % 1 else f"  {what}: {figure:,.0f}")
