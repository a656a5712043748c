"""Rows of numbers as they are written: judged as decoding them would, and counted the same."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch_rl.rollouts.scanning import MASKS, NUMBERS, TOKENS, Kind, lengths
from overwatch_rl.web.faults import InvalidError

KINDS = {"tokens": TOKENS, "masks": MASKS, "numbers": NUMBERS}
PIECES = [
    "0", "7", "-1", "12", "1e5", "1e-5", "1E5", "1e+05", "1e999", "1e-999", "0.5", "9" * 18, "9" * 19,
    "9" * 400, "0." + "1" * 25, "NaN", "null", "true", '"a,[b"', "{}", "[1]", "[]", "01", "", " 3 ", "\n4",
]  # fmt: skip
ROW = st.lists(st.sampled_from(PIECES), max_size=6).map(",".join)
PLAIN = st.lists(st.sampled_from(["1", "23", "4"]), max_size=4).map(",".join)
LONG = "1234567," * 40_000
"""More than one block."""


def exact(kind: Kind, value: bytes) -> Any:
    """What decoding finds, `None` where it is wrong; an integer that no reader can hold is."""
    try:
        found = kind.rows[2].decode(value)
    except msgspec.MsgspecError:
        return None
    whole = [number for row in json.loads(value) for number in row if isinstance(number, int)]
    return found if all(abs(number) < 1 << 63 for number in whole) else None


@pytest.mark.parametrize("before", ["", LONG], ids=["short", "long"])
@given(name=st.sampled_from(sorted(KINDS)), rows=st.lists(ROW | PLAIN, min_size=1, max_size=3))
def test_rows_are_judged_as_decoding_would(before: str, name: str, rows: list[str]) -> None:
    """Whatever is in a row: it is refused, or has as many values as decoding finds."""
    value = ("[" + ",".join(f"[{before}{row}]" for row in rows) + "]").encode()
    kind = KINDS[name]
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return
    whole = exact(kind, value)
    if whole is None:
        with pytest.raises(InvalidError):
            lengths(value, kind, 2)
    else:
        assert lengths(value, kind, 2) == [len(row) for row in whole]


@pytest.mark.parametrize(
    ("value", "level", "found"),
    [
        ("[]", 2, []), ("[ ]", 1, [0]), ("[1, 2]", 1, [2]), ("[[1,\n2],[]]", 2, [2, 0]),
        ("[[[1,2],[3]],[[]],[]]", 3, [2, 1, 0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("padding", [0, 1 << 19])
def test_rows_are_counted(value: str, level: int, found: list[int], padding: int) -> None:
    """At each level, in a short value and in one of several blocks."""
    assert lengths((value[:-1] + " " * padding + value[-1]).encode(), NUMBERS, level) == found


@pytest.mark.parametrize(
    ("value", "level", "path"),
    [
        ("[1]", 2, "[0]"), ("[[1],2]", 2, "[1]"), ("[[1],[[2]]]", 2, "[1][0]"), ("[[1]]", 3, "[0][0]"),
        ("7", 1, ""),
        ("[[1,null]]", 2, "[0][1]"), ("[[1],[2,{}]]", 2, "[1][1]"),
        (f"[[{LONG}1],[2,{'9' * 30}]]", 2, "[1][1]"),
        (f"[[{LONG}1],[{LONG}1e999]]", 2, "[1][40000]"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_by_its_path(value: str, level: int, path: str) -> None:
    """By its place in the lists."""
    with pytest.raises(InvalidError) as error:
        lengths(value.encode(), NUMBERS, level)

    assert error.value.fault.path == path
