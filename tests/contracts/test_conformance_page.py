"""The page that states which test holds the collector to what OTLP asks: every test it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/otlp.md").read_text()
TEST = re.compile(r"`([a-z_/0-9]+\.py)::(test_\w+)`")
CHECKED = 32
"""Rows of the checklist: what is expected of a server (23), and of a collector (8)."""


def file_of(name: str) -> Path:
    """A test's file, by its name on the page."""
    own = ROOT / "tests/overwatch" / name
    return own if own.exists() else ROOT / "tests" / name


def test_every_test_on_the_page_exists() -> None:
    """A renamed test is renamed there too."""
    named = TEST.findall(PAGE)
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not file_of(file).exists() or f"def {test}(" not in file_of(file).read_text()
    ]

    assert len(named) > 80
    assert missing == []


def test_every_row_of_the_checklist_has_a_test() -> None:
    """None is claimed without one, and none was left out."""
    section = PAGE.partition("## A server's checklist")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]

    assert len(rows) == CHECKED
    assert [row for row in rows if not TEST.search(row)] == []
