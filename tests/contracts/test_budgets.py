"""Files, functions and parameter lists stay small; an exception is listed here with its reason."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

SRC: Final = Path(__file__).parents[2] / "src"
MAX_FILE: Final = 600
MAX_FUNCTION: Final = 60
MAX_NUMERIC_STEP: Final = 70
MAX_PARAMETERS: Final = 6

NUMERIC: Final = ("overwatch_rl/algorithms/", "overwatch_rl/training/", "overwatch_rl/worlds/")
"""One linear numeric step is kept whole here."""

WIDE: Final[dict[str, str]] = {
    "overwatch/sdk/__init__.py:start": "the one entry point names all that a run can say of itself",
    "overwatch/sdk/facts.py:seed_stage_changed": "one keyword a field of the fact",
    "overwatch/sdk/facts.py:gate_evaluated": "one keyword a field of the fact",
    "overwatch/sdk/facts.py:log": "one keyword a field of the line",
    "overwatch/sdk/run.py:slots": "one keyword a column",
    "overwatch/sdk/stepping.py:rollout": "one keyword a part of what steps they are",
}
"""Functions with more parameters, each with its reason."""


@cache
def _functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of every source file, with the file's name."""
    return [
        (str(path.relative_to(SRC)), node)
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in named)


def test_files_are_short() -> None:
    """No source file is longer than 600 lines."""
    long = {
        str(path.relative_to(SRC)): lines
        for path in SRC.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > MAX_FILE
    }

    assert long == {}


def test_functions_are_short() -> None:
    """No function is longer than 60 lines, or 70 for one linear numeric step."""
    long = {}
    for name, function in _functions():
        limit = MAX_NUMERIC_STEP if name.startswith(NUMERIC) else MAX_FUNCTION
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > limit:
            long[f"{name}:{function.name}"] = length

    assert long == {}


def test_parameter_lists_are_short() -> None:
    """No function takes more than six parameters, but for those listed with their reason."""
    wide = {
        f"{name}:{function.name}" for name, function in _functions() if _parameters(function) > MAX_PARAMETERS
    }

    assert wide == set(WIDE)
