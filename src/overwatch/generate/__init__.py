"""From the catalogue and the types to committed files: schema and reference, each by one pure function.

A generated file names its generator; edit the row or the type and run `make generate`, never the file.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from overwatch.generate.boards.book import board_text
from overwatch.generate.boards.uids import Board
from overwatch.generate.bounds_page import bounds_page
from overwatch.generate.catalog_page import catalog_page
from overwatch.generate.runbooks_page import runbooks_page
from overwatch.generate.schema import snapshot_schema

FILES: Final = MappingProxyType[str, Callable[[], str]](
    {
        "otel/snapshot.schema.json": snapshot_schema,
        "docs/catalog.md": catalog_page,
        "docs/runbooks.md": runbooks_page,
        "docs/bounds.md": bounds_page,
        **{board.file: partial(board_text, board) for board in Board},
    }
)
"""Path below the project's root to the function that makes the file's text."""


def stale_files(root: Path) -> list[str]:
    """Committed files that differ from what their generator makes now."""
    return [name for name, make in FILES.items() if _read(root / name) != make()]


def write_files(root: Path) -> list[str]:
    """Write every file that is stale; returns their names."""
    changed = stale_files(root)
    for name in changed:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(FILES[name](), encoding="utf-8")
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
