"""Counters: what is counted can be shown."""

import pytest

from overwatch.collector.tally import HELP, Tally
from overwatch.serve.metrics_text import Family, FamilyBuilder


def _shown(tally: Tally) -> dict[str, Family]:
    page = FamilyBuilder()
    tally.write(page)
    return {family.name: family for family in page.families()}


def test_a_name_that_no_page_explains_is_refused_where_it_is_counted() -> None:
    """Not when somebody looks at the page, which would be gone for everybody."""
    tally = Tally()
    with pytest.raises(KeyError, match="has no help text"):
        tally.add("overwatch_exporter_unheard_of", 0, exporter="a")
    assert _shown(tally) == {}


def test_every_known_name_is_shown_with_what_it_counts() -> None:
    """Also at 0, and each series of it."""
    tally = Tally()
    for name in HELP:
        tally.add(name, 0, exporter="a")
        tally.add(name, 2, exporter="b")
    assert set(_shown(tally)) == set(HELP)
    assert all(family.documentation.endswith("?") for family in _shown(tally).values())
    assert tally.get("overwatch_exporter_lost_lines", exporter="b") == 2
