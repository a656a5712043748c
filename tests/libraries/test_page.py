"""The table of libraries is what was measured."""

from tests.libraries.examples import examples
from tests.libraries.page import PAGE, kept, page


def test_the_page_is_what_was_measured() -> None:
    """A result that was kept is on the page, and a library that was never run is named as such."""
    assert PAGE.read_text(encoding="utf-8") == page(kept())


def test_every_result_is_of_an_example() -> None:
    """A program that was removed leaves no line."""
    assert {one.name for one in kept()} <= {one.name for one in examples()}
