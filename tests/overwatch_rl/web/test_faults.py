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
        (b'{"more": "\\ud800"}', "", "is no JSON that can be read"),
        (b'{"more": NaN, "step": ' + b"9" * 5000 + b"}", "", "has a number that cannot be read"),
        (b"\xff", "", "is not UTF-8 at byte 0"),
        (b'{"more": ' + b"[" * 200_000, "", "is nested too deeply"),
        (b"", "", "is empty; send JSON"),
        (b"{", "", "is no JSON: "),
    ],
)
def test_a_fault_has_its_path_and_its_fix(body: bytes, path: str, stated: str) -> None:
    """Whatever was sent, it is an error of the sender."""
    with pytest.raises(InvalidError) as error:
        decode(body, DECODER, {"step": "count from 0"})

    assert error.value.fault.path == path
    assert stated in error.value.fault.message


def test_a_good_body_is_decoded() -> None:
    """Once."""
    assert decode(b'{"step": 3, "rows": [1]}', DECODER) == Body(step=3, rows=[1.0])
