"""What is wrong with a body, by the path of the field."""

from typing import Any

import msgspec
import pytest

from overwatch_rl.web.faults import InvalidError, decode


class Body(msgspec.Struct):
    """A body."""

    step: int = 0
    rows: list[float] = []
    more: Any = None


DECODER = msgspec.json.Decoder(Body)


@pytest.mark.parametrize(
    ("body", "path", "stated"),
    [
        (b'{"step": "x"}', "step", 'Expected `int`, got `str`: "x"; count from 0'),
        (b'{"rows": [1, NaN]}', "rows[1]", "NaN is no JSON number; send a finite number"),
        (b'{"rows": [1, "a"]}', "rows[1]", "Expected `float`, got `str`"),
        (b'{"more": {"deep": [-Infinity]}}', "more.deep[0]", "-Infinity is no JSON number"),
        (b'{"more": ["\\ud83d\\ude00", "\\udc80"]}', "more[1]", "\\udc80 is half a character"),
        (b'{"more": [{"a": [1], "\\udc80": 2}]}', "more[0]", "\\udc80 is half a character"),
        (b'{"more": {"\xff": 1}}', "more", "is not UTF-8 at byte 11"),
        (b'{"more": {"a": 1, "b": [2, "\\ud800"]}}', "more.b[1]", "\\ud800 is half a character"),
        (b'{"more": NaN, "step": ' + b"9" * 5000 + b"}", "more", "NaN is no JSON number"),
        (b'{"more": 1, "step": ' + b"9" * 5000 + b"}", "step", "Integer value out of range"),
        (b'{"more": {"a": ["\xff"]}}', "more.a[0]", "is not UTF-8 at byte 17"),
        (b'{"rows": [' + b"1," * 99_999 + b"NaN]}", "rows[99999]", "NaN is no JSON number"),
        (b'{"rows": [' + b"1," * 99_999 + b'"x"]}', "rows[99999]", "Expected `float`, got `str`"),
        (b'{"step": "' + b"x" * 99_999 + b'"}', "step", "Expected `int`, got `str`"),
        (b'{"more": [' + b"[]," * 2_000_000 + b"NaN]}", "", "NaN is no JSON number"),
        (b"\xff", "", "is no JSON that can be read"),
        (b'{"more": ' + b"[" * 200_000, "", "is nested too deeply"),
        (b"", "", "is empty; send JSON"),
        (b"{", "", "is no JSON that can be read: Input data was truncated"),
    ],
)
def test_a_fault_has_its_path_and_its_fix(body: bytes, path: str, stated: str) -> None:
    """Whatever was sent, it is an error of the sender."""
    with pytest.raises(InvalidError) as error:
        decode(body, DECODER, {"step": "count from 0"})

    assert error.value.fault.path == path
    assert stated in error.value.fault.message
    assert len(str(error.value)) < 1000


def test_a_good_body_is_decoded() -> None:
    """Once."""
    assert decode(b'{"step": 3, "rows": [1]}', DECODER) == Body(step=3, rows=[1.0])
