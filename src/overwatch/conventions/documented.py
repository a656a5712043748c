"""What is written under each field of a struct, read from its source: one text for code, pages and commands.

Must not know what the structs are for.
"""

import ast
import inspect
import textwrap
from itertools import pairwise

import msgspec


def described(section: type[msgspec.Struct]) -> dict[str, str]:
    """What is written under each field of a struct, and of those that it extends, by the field's name."""
    found: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            found |= _written(kind)
    return found


def _written(section: type[msgspec.Struct]) -> dict[str, str]:
    """What is written under each field of one class."""
    written = ast.parse(textwrap.dedent(inspect.getsource(section))).body[0]
    lines = written.body if isinstance(written, ast.ClassDef) else []
    found = {}
    for field, below in pairwise(lines):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[field.target.id] = " ".join(text.value.split())
    return found
