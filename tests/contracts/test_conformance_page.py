"""The page that says which test holds the collector to what OTLP asks: every test it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_on_the_page_exists() -> None:
    """A renamed test is renamed there too."""
    named = re.findall(r"`([a-z_/0-9]+\.py)::(test_\w+)`", (ROOT / "docs/otlp.md").read_text())
    missing = [
        f"{file}::{test}"
        for file, test in named
        if f"def {test}(" not in (ROOT / "tests/overwatch" / file).read_text()
    ]

    assert len(named) > 20
    assert missing == []
