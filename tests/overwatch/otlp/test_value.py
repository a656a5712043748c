"""Values that identify something: text and whole numbers are taken for one another."""

import math

import pytest

from overwatch.otlp.value import Value, as_whole, as_word


@pytest.mark.parametrize(
    ("value", "word", "whole"),
    [
        ("run-1", "run-1", None), ("", None, None), ("12", "12", 12), ("-3", "-3", -3), ("007", "007", 7),
        ("1.0", "1.0", None), (" 7", " 7", None), ("٣", "٣", None), ("9" * 19, "9" * 19, None),
        (48151623, "48151623", 48151623), (0, "0", 0), (-(2**63), str(-(2**63)), -(2**63)),
        (3.0, "3", 3), (-0.0, "0", 0), (3.5, None, None), (1e300, None, None), (math.nan, None, None),
        (math.inf, None, None), (True, None, None), (False, None, None), (None, None, None),
        (b"12", None, None), ([12], None, None), ({"id": 12}, None, None),
    ],
)  # fmt: skip
def test_whole_numbers_and_text_identify_alike(value: Value, word: str | None, whole: int | None) -> None:
    """Nothing else identifies anything: no fraction, no truth value, no list."""
    assert (as_word(value), as_whole(value)) == (word, whole)
