"""The table of libraries is what was measured."""

import json
from pathlib import Path

from tests.libraries.examples import ROOT, examples
from tests.libraries.page import PAGE, PAGES, kept, logged_rows, page


def test_the_page_is_what_was_measured() -> None:
    """A result that was kept is on the page, and a library that was never run is named as such."""
    assert PAGE.read_text(encoding="utf-8") == page(kept(), examples())


def test_every_result_is_of_an_example_as_it_is() -> None:
    """Of the packages and the lines that it has now; a program that was removed leaves no line."""
    now = {one.name: (one.versions, one.added) for one in examples()}
    assert [one.name for one in kept() if (one.versions, one.added) != now.get(one.name)] == []


def test_an_example_that_was_not_measured_is_named(tmp_path: Path) -> None:
    """Its line states it, instead of leaving it out."""
    first, *_ = kept()
    (tmp_path / "absent.py").write_text("")
    (tmp_path / "absent.txt").write_text("")
    assert "not measured: `absent`" in page([first], examples(tmp_path))
    assert "not measured" not in page([first], [])


def test_every_page_of_a_library_is_in_the_navigation() -> None:
    """Its page is found from the list of pages."""
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [path.name for path in PAGES.glob("*.md") if f"adapters/{path.name}" not in listed] == []


def test_a_row_is_missing_only_where_the_example_could_have_logged_it(tmp_path: Path) -> None:
    """Of a recording of several algorithms those of others do not count, nor do names that mean no row."""
    logged = [
        {"algorithm": "PPO", "train/approx_kl": 0.01, "train/n_updates": 1},
        {"algorithm": "DQN", "rollout/exploration_rate": 0.5},
    ]
    (tmp_path / "sb3.json").write_text(json.dumps({"library": "SB3", "logged": logged}))
    assert logged_rows("sb3", {"ppo"}, tmp_path) == {"kl_divergence"}
    assert logged_rows("sb3_dqn", {"dqn"}, tmp_path) == {"epsilon"}
    assert logged_rows("skrl", {"ppo"}, tmp_path) == set()
