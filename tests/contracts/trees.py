"""The source as syntax trees: which module imports which, which class inherits from which."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

SRC: Final = Path(__file__).parents[2] / "src"
ClassName: TypeAlias = tuple[str, str]
"""A class by its module and its name."""


def modules(folder: Path = SRC) -> dict[str, ast.Module]:
    """Every module below a folder, by its dotted name."""
    return {_named(path, folder): ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def _named(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, trees: dict[str, ast.Module]) -> set[str]:
    """The own modules that a module imports, wherever it does, also for types alone."""
    found = {own for own, _ in _imported(name, trees).values()}
    found |= {own for node in ast.walk(trees[name]) if isinstance(node, ast.Import) for own in _plain(node)}
    return (found & trees.keys()) - {name}


def _plain(node: ast.Import) -> Iterator[str]:
    return (alias.name for alias in node.names)


def _imported(name: str, trees: dict[str, ast.Module]) -> dict[str, tuple[str, str | None]]:
    """What the names mean that a module imports: a module, and a name in it or the whole."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(trees[name]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                known = (whole, None) if whole in trees else (node.module, alias.name)
                found[alias.asname or alias.name] = known
    return found


def circles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Modules that import one another, directly or through others; each circle sorted."""
    ahead = {name: imports(name, trees) for name in trees}
    reach = {name: _reached(name, ahead) for name in trees}
    rings = {tuple(sorted(one for one in reach[name] if name in reach[one])) for name in trees}
    return sorted(list(ring) for ring in rings if ring)


def _reached(start: str, ahead: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(ahead[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left.extend(ahead[name])
    return seen


@cache
def bases() -> dict[ClassName, tuple[ClassName, ...]]:
    """Every class of the source with those of its bases that are in the source too."""
    trees = modules()
    defined = {
        (name, node.name): node
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    meant = {name: _imported(name, trees) for name in trees}

    def resolved(module: str, name: str) -> ClassName | None:
        while (module, name) not in defined:
            module, inner = meant.get(module, {}).get(name, ("", None))
            if not module or inner is None:
                return None
            name = inner
        return module, name

    def base(module: str, node: ast.expr) -> ClassName | None:
        node = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return resolved(meant[module].get(node.value.id, ("", None))[0], node.attr)
        return resolved(module, node.id) if isinstance(node, ast.Name) else None

    return {
        own: tuple(found for one in node.bases if (found := base(own[0], one)) is not None)
        for own, node in defined.items()
    }
