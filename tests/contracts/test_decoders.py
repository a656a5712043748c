"""msgspec learns a type at its first use, and crashes where two threads are the first: a module is it."""

import ast
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src/overwatch"
ALONE = ("cli/", "generate/", "config.py", "tui/settings.py")
"""What runs before there are threads, or in none."""
PLAIN = {"dict", "int", "str", "list", "float"}
CONVERTED = {"otlp/decode.py"}
"""Who converts to types for which it has made a decoder: what that has learned, `convert` knows."""


def learning(module: ast.Module, *, converts: bool) -> list[int]:
    """Lines where a type of ours is given to a call that may be its first use."""
    found = []
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        types = [word.value for word in node.keywords if word.arg == "type"]
        if ast.unparse(node.func) == "msgspec.convert":
            types += [] if converts else node.args[1:2]
        elif node.func.attr != "decode":
            continue
        for one in types:
            names = {name.id for name in ast.walk(one) if isinstance(name, ast.Name)}
            if names - PLAIN - {"msgspec"}:
                found.append(node.lineno)
    return found


def test_no_function_is_the_first_to_decode_a_type() -> None:
    """Where threads may run, a decoder of each type is made when its module is imported."""
    found = {
        f"{path.relative_to(SRC)}:{line}"
        for path in SRC.rglob("*.py")
        if not str(path.relative_to(SRC)).startswith(ALONE)
        for line in learning(ast.parse(path.read_text()), converts=str(path.relative_to(SRC)) in CONVERTED)
    }
    assert found == set()


KNOWN = """
import gc, typing
import overwatch.otlp.decode
from overwatch.events import Event
for kind in typing.get_args(Event):
    print(kind.__name__, any(type(one).__name__ == "StructInfo" for one in gc.get_referents(kind)))
"""


def test_a_type_of_which_there_is_a_decoder_is_known_to_convert() -> None:
    """Whoever imports what converts to events has learned all their types: none is left for two threads."""
    said = subprocess.run([sys.executable, "-c", KNOWN], capture_output=True, text=True, check=True).stdout
    kinds = dict(line.split() for line in said.splitlines())
    assert "LogLine" in kinds
    assert set(kinds.values()) == {"True"}
