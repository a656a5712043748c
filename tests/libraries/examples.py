"""The programs of `examples/`: what each needs, and what Overwatch adds to it.

An example is `NAME.py` with `NAME.txt` beside it, the packages beyond PyTorch and Overwatch, pinned. The
lines that are Overwatch's end with `# Overwatch`; what is left without them is the library's own program.
"""

import ast
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "examples"
MARK: Final = "# Overwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One program."""

    name: str
    script: Path
    requirements: tuple[Requirement, ...]

    @property
    def source(self) -> str:
        """The program."""
        return self.script.read_text(encoding="utf-8")

    @property
    def added(self) -> int:
        """How many lines are Overwatch's."""
        return sum(_is_ours(line) for line in self.source.splitlines())

    @property
    def bare(self) -> str:
        """The program without Overwatch."""
        return "".join(line for line in self.source.splitlines(keepends=True) if not _is_ours(line))

    @property
    def lacks(self) -> tuple[str, ...]:
        """Its packages that this interpreter has not, or in another version."""
        return tuple(str(needed) for needed in self.requirements if not _is_met(needed))

    @property
    def versions(self) -> str:
        """The packages that it is an example of, with their versions."""
        return ", ".join(f"{needed.name} {str(needed.specifier).lstrip('=')}" for needed in self.requirements)


def _is_ours(line: str) -> bool:
    return line.rstrip().endswith(MARK)


def _is_met(needed: Requirement) -> bool:
    try:
        return needed.specifier.contains(version(needed.name), prereleases=True)
    except PackageNotFoundError:
        return False


def examples(folder: Path = FOLDER) -> list[Example]:
    """All programs of a folder, by name."""
    return [_example(script) for script in sorted(folder.glob("*.py"))]


def _example(script: Path) -> Example:
    listed = script.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    needed = tuple(Requirement(line) for line in listed if line.strip() and not line.startswith("#"))
    return Example(name=script.stem, script=script, requirements=needed)


def names_of(source: str) -> set[str]:
    """Every name that a program uses: variables, attributes, modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
            found.add(getattr(node, "module", None) or "")
    return found
