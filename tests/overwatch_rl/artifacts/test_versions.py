"""Versions are ordered, spelled, and never used twice."""

from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.artifacts.versions import Version, parse

VERSIONS = st.builds(Version, st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))


@given(VERSIONS)
def test_what_was_spelled_is_read(version: Version) -> None:
    """Any of them."""
    assert parse(str(version)) == version


@given(
    st.builds(Version, st.integers(0, 999), st.integers(0, 10**8 - 1)),
    st.builds(Version, st.integers(0, 999), st.integers(0, 10**8 - 1)),
)
def test_text_is_in_the_order_of_versions(one: Version, other: Version) -> None:
    """So that a listing is."""
    assert (one < other) == (str(one) < str(other))


def test_other_text_is_none() -> None:
    """Too short, with more around it, in digits of another script."""
    assert str(Version(1, 10)) == "001-00000010"
    for text in ("", "1-10", "001-0000001", "001-00000010 ", "001-00000010/x", "\u0660\u0660\u0661-00000010"):
        assert parse(text) is None


@given(VERSIONS, st.none() | VERSIONS)
def test_a_resumed_line_begins_above_all_that_was_used(kept: Version, published: Version | None) -> None:
    """Greater in both parts than the checkpoint and what was published since."""
    first = kept.resumed(published)
    for used in filter(None, (kept, published)):
        assert first.lineage > used.lineage
        assert first.number > used.number
