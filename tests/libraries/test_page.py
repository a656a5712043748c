"""The table of libraries is what was measured."""

from tests.libraries.examples import ROOT, examples
from tests.libraries.page import PAGE, PAGES, kept, page


def test_the_page_is_what_was_measured() -> None:
    """A result that was kept is on the page, and a library that was never run is named as such."""
    assert PAGE.read_text(encoding="utf-8") == page(kept())


def test_every_result_is_of_an_example() -> None:
    """A program that was removed leaves no line."""
    assert {one.name for one in kept()} <= {one.name for one in examples()}


def test_every_page_of_a_library_is_in_the_navigation() -> None:
    """Its page is found from the list of pages."""
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [path.name for path in PAGES.glob("*.md") if f"adapters/{path.name}" not in listed] == []
