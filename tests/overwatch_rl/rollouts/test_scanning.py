"""The quick look at a group: it passes nothing that decoding would refuse, and counts the same."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.rollouts.scanning import scanned
from overwatch_rl.rollouts.wire import Scored

FIELDS = ("tokens", "masks", "advantages", "ref_logprobs", "inference_logprobs")
PIECES = [
    "0", "7", "-1", "12", "-", "+", ".", "e", "E", "e-", "1e5", "1e-5", "1e999", "0.5", ",", ", ", " ", "[",
    "]", "]]", "null", "01", "9" * 18, "9" * 19, "9" * 400, '"', "NaN", "\n", "\v", "true",
]  # fmt: skip
ROW = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
PLAIN = st.lists(st.sampled_from(["1", "23", "4"]), max_size=4).map(",".join)


def text(**rows: str) -> bytes:
    """A group with rows as they are written; each is the inside of one row."""
    inner = {"tokens": "1", "masks": "-100", **rows}
    stated = ",".join(f'"{name}":[[{row}]]' for name, row in inner.items())
    return f'{{{stated},"scores":[1.0],"env_id":3}}'.encode()


def exact(body: bytes) -> Scored | None:
    """The group that decoding finds."""
    try:
        return msgspec.json.decode(body, type=Scored)
    except msgspec.MsgspecError:
        return None


@given(name=st.sampled_from(FIELDS), row=ROW | PLAIN)
def test_what_passes_would_be_decoded_with_the_same_lengths(name: str, row: str) -> None:
    """Whatever stands in a row: it is decoded alike, or left to the exact way."""
    body = text(**{name: row})

    found = scanned(body)

    if found is not None:
        whole = exact(body)
        assert whole is not None, body
        assert json.loads(body)
        assert {field: [len(one) for one in getattr(found, field) or ()] for field in FIELDS} == {
            field: [len(one) for one in getattr(whole, field) or ()] for field in FIELDS
        }
        assert (found.scores, found.env_id) == (whole.scores, whole.env_id)


@pytest.mark.parametrize(
    ("row", "length"), [("", 0), (" ", 0), ("1", 1), ("1,22, 333", 3), (" 1 ,\n2 ", 2), ("9" * 18, 1)]
)
def test_plain_rows_are_not_decoded(row: str, length: int) -> None:
    """The usual ways to write a row."""
    found = scanned(text(tokens=row, masks=row, inference_logprobs=row))

    assert found is not None
    assert [len(found.tokens[0]), len(found.masks[0])] == [length, length]


def test_numbers_that_a_model_gives_are_plain() -> None:
    """Also small ones, which have a negative exponent."""
    assert scanned(text(inference_logprobs="-0.25, -1.2e-05, 1.0, -17")) is not None


def test_a_number_of_64_bits_is_decoded() -> None:
    """At the border of what a trainer can hold the exact way decides."""
    assert exact(text(tokens=str((1 << 63) - 1))) is not None
    assert exact(text(tokens=str(1 << 63))) is None


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("tokens", "-1"), ("tokens", "1.0"), ("tokens", "9" * 19), ("tokens", "[1]"), ("tokens", '"1"'),
        ("masks", "1e5"), ("masks", "null"), ("advantages", "1e400"), ("advantages", "1E5"),
        ("advantages", "9" * 400), ("ref_logprobs", "NaN"), ("ref_logprobs", "true"), ("tokens", "01"),
        ("tokens", "1 2"), ("tokens", "1,,2"), ("tokens", "1,"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_exact_way(name: str, row: str) -> None:
    """It may be right or wrong."""
    assert scanned(text(**{name: row})) is None
