"""The project only becomes smaller: a row of `size.toml` holds, follows deletions, and is never raised."""

import itertools
import subprocess
import sys
from typing import Final

import pytest

from tests import size

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="tokens are those of Python 3.11")

SLACK: Final = 0.01
"""A row may lie above its figure by this share, or by `LEAST`, until it has to be lowered."""
LEAST: Final = 500.0
MOST_IN_TRANSITION: Final = 20_000
MAY_GROW: Final = {"lines": 4_800, "gzip_bytes": 73_500}
"""How far the page may grow, which gains first screens while the rest is halved."""


def test_every_row_holds() -> None:
    """Every figure is within its limit; no limit lies far above its figure, where code could grow again."""
    limits, figures = size.rows(size.CONTRACT.read_text(encoding="utf-8")), size.measure()
    larger = {
        f"{table}: {key}": f"{value:.6g}, limit {limits[table].get(key, 0):.6g}"
        for table, row in figures.items()
        for key, value in row.items()
        if value > limits[table].get(key, 0) + _in_transition(table, key)
    }
    loose = {
        f"{table}: {key}": f"{figures[table].get(key, 0):.6g}, limit {limit:.6g}"
        for table, row in limits.items()
        if table != "marks"
        for key, limit in row.items()
        if limit - figures[table].get(key, 0) > max(LEAST, limit * SLACK)
    }

    assert larger == {}, "delete elsewhere below the same root, and move the row within its total"
    assert loose == {}, "run: python -m tests.size --lower"


def test_no_version_raised_a_total() -> None:
    """Between two versions of the file no total rose, and no row that belongs to no total."""
    texts = _versions()
    raised = [
        f"{table}: {key}: {before[table][key]:.6g} to {value:.6g}"
        for older, newer in itertools.pairwise(texts)
        for before in [size.rows(older)]
        for table, row in size.rows(newer).items()
        for key, value in row.items()
        if key in before.get(table, {}) and value > before[table][key]
        if key == "total" or ("total" not in row and value > MAY_GROW.get(key, 0))
    ]

    assert raised == []


def test_packages_add_up() -> None:
    """The rows of packages are no way around the total of their root."""
    limits = size.rows(size.CONTRACT.read_text(encoding="utf-8"))
    sums = {
        root: (sum(value for key, value in row.items() if key != "total"), row["total"])
        for root, row in limits.items()
        if "total" in row
    }

    assert {root for root, (packages, total) in sums.items() if packages > total} == set()


def test_a_transition_is_small_and_has_an_end() -> None:
    """A replacement that stands beside what it replaces names what it deletes and the issue that ends it."""
    rows = size.transitions(size.CONTRACT.read_text(encoding="utf-8"))

    assert all(row.keys() >= {"name", "root", "tokens", "deletes", "issue"} for row in rows)
    assert sum(float(str(row["tokens"])) for row in rows) <= MOST_IN_TRANSITION


def test_a_long_text_counts_its_words() -> None:
    """Code does not become smaller by moving into strings; prose beside code costs nothing."""
    words = " ".join(["word"] * 50)

    assert size.tokens(f'x = "{words}"\n') == 2 + 50
    assert size.tokens('"""A docstring."""\nimport os\n# a comment\nx = "short text"\n') == 3


def _in_transition(table: str, key: str) -> float:
    rows = size.transitions(size.CONTRACT.read_text(encoding="utf-8"))
    named = {("total", str(row["root"])): float(str(row["tokens"])) for row in rows} | {
        (str(row["name"]), str(row["root"])): float(str(row["tokens"])) for row in rows
    }
    return named.get((key, table.removeprefix("tokens.")), 0)


def _versions() -> list[str]:
    """Return the contract's texts, oldest first: what Git has of them, then the file as it is."""
    name = size.CONTRACT.relative_to(size.ROOT).as_posix()
    git = ["git", "-C", str(size.ROOT)]
    log = subprocess.run(  # a source without history, as of an sdist, has only the file
        [*git, "log", "--format=%H", "--reverse", "--", name], capture_output=True, text=True, check=False
    )
    commits = log.stdout.split()
    texts = [
        subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, text=True, check=True).stdout
        for commit in commits
    ]
    return [*texts, size.CONTRACT.read_text(encoding="utf-8")]
