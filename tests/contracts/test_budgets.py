"""Files, functions and parameter lists stay small; an exception is listed here with its reason."""

import ast
from functools import cache
from typing import Final

from tests.contracts.trees import SRC, bases, imports, modules

MAX_FILE: Final = 600
MAX_FUNCTION: Final = 60
MAX_NUMERIC_STEP: Final = 70
MAX_PARAMETERS: Final = 6
MAX_DEPTH: Final = 2

NUMERIC: Final = ("overwatch_rl/algorithms/", "overwatch_rl/training/", "overwatch_rl/worlds/")
"""One linear numeric step is kept whole here."""

WIDE: Final[dict[str, str]] = {
    "overwatch/sdk/launch.py:start": "the one entry point names all that a run can state of itself",
    "overwatch/sdk/run.py:seed_stage_changed": "one keyword a field of the fact",
    "overwatch/sdk/run.py:gate_evaluated": "one keyword a field of the fact",
    "overwatch/sdk/run.py:log": "one keyword a field of the line",
    "overwatch/sdk/run.py:slots": "one keyword a column",
    "overwatch/sdk/run.py:rollout": "one keyword a part of what steps they are",
}
"""Functions with more parameters, each with its reason."""


DEEP: Final = ("overwatch_rl.telemetry.running.Lines",)
"""Classes with more classes above them that are still there."""


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


def _depth(name: tuple[str, str]) -> int:
    return 1 + max((_depth(base) for base in bases()[name]), default=0)


def test_inheritance_is_shallow() -> None:
    """Above a class of the source is at most one other of it."""
    deep = sorted(".".join(name) for name in bases() if _depth(name) > MAX_DEPTH)

    assert deep == list(DEEP)


def test_no_class_is_spread_over_files() -> None:
    """A base class that only one other file knows, for its only heir there, is a part of that class."""
    trees = modules()
    users: dict[str, set[str]] = {}
    for name in trees:
        for used in imports(name, trees):
            users.setdefault(used, set()).add(name)
    heirs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, above in bases().items():
        for base in above:
            heirs.setdefault(base, []).append(name)
    spread = sorted(
        ".".join(base)
        for base, own in heirs.items()
        if len(own) == 1 and own[0][0] != base[0] and users[base[0]] == {own[0][0]}
    )

    assert spread == []
