"""msgspec learns a type at its first use, and crashes where two threads are the first: a module is it."""

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src/overwatch"
ALONE = ("cli/", "generate/", "config.py", "tui/settings.py", "recordings/__main__.py")
"""What runs before there are threads, or in none."""
PLAIN = {"dict", "int", "str", "list", "float"}


def learning(module: ast.Module) -> list[int]:
    """Lines where a type of ours is given to a call that may be its first use."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
            for word in node.keywords:
                names = {name.id for name in ast.walk(word.value) if isinstance(name, ast.Name)}
                if word.arg == "type" and names - PLAIN - {"msgspec"}:
                    found.append(node.lineno)
    return found


def test_no_function_is_the_first_to_decode_a_type() -> None:
    """Where threads may run, a decoder of each type is made when its module is imported."""
    found = {
        f"{path.relative_to(SRC)}:{line}"
        for path in SRC.rglob("*.py")
        if not str(path.relative_to(SRC)).startswith(ALONE)
        for line in learning(ast.parse(path.read_text()))
    }
    assert found == set()
