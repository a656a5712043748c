"""Durations as the OpenTelemetry Collector writes them."""

import pytest

from overwatch.collector.setting_types import Duration, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5.0),
        ("300ms", 0.3),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("250us", 0.00025),
        ("0", 0.0),
        (0, 0.0),
    ],
)
def test_a_duration_is_read(text: Duration, expected: float) -> None:
    """A number and a unit, any number of times; nothing needs no unit."""
    assert seconds("timeout", text) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["", "5", 5, "s", "-5s", "5 s", "5sec", "1m 30s", "nan", "infs", "1e3s"])
def test_what_is_no_duration_is_named(text: Duration) -> None:
    """The message holds the key, the value and what to write."""
    with pytest.raises(ValueError, match=r"timeout .* is no duration; write .* 5s"):
        seconds("timeout", text)
