"""Bytes that must be the same are compared, and no others."""

import numpy as np
import pytest

from overwatch.otlp.mask import Mask

LENGTH = 100_000


@pytest.mark.parametrize(
    ("gaps", "width"),
    [((), 0), ((0,), 5_000), ((40, 60_000), 8), ((300, 900, 50_000), 300), (range(0, 99_000, 900), 600)],
)
def test_a_byte_counts_unless_it_lies_in_a_gap(gaps: tuple[int, ...], width: int) -> None:
    """Where gaps are short, long, at an end, or too many to go around."""
    dice = np.random.default_rng(5)
    bits = np.full(LENGTH, 0xFF, np.uint8)
    for start in gaps:
        bits[start : start + width] = 0
    body = dice.integers(0, 256, LENGTH, dtype=np.uint8)
    mask = Mask.of(body.tobytes(), bits)
    for place in (
        *dice.integers(0, LENGTH, 200).tolist(),
        0,
        LENGTH - 1,
        *(start - 1 for start in gaps if start),
    ):
        came = body.copy()
        came[place] ^= 0x80

        assert mask.fits(came) == (not bits[place])
    assert not mask.fits(body[:-1])


def test_of_a_byte_only_the_bits_that_were_asked_for_count() -> None:
    """The rest of it is a number."""
    body = np.zeros(1000, np.uint8)
    bits = body.copy()
    bits[500] = 0x80
    mask = Mask.of(body.tobytes(), bits)
    body[500] = 0x7F
    assert mask.fits(body)
    body[500] = 0x80
    assert not mask.fits(body)


def test_where_nothing_has_to_be_the_same_only_the_length_counts() -> None:
    """Such a mask fits all bytes of its length."""
    mask = Mask.of(bytes(1000), np.zeros(1000, np.uint8))
    assert mask.fits(np.ones(1000, np.uint8))
    assert not mask.fits(np.ones(999, np.uint8))
