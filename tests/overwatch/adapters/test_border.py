"""The border: an adapter's error is counted, said once, and never reaches the training loop."""

import pytest

from overwatch.adapters.border import Bordered, kept_out


class Fragile(Bordered):
    """Breaks at every call."""

    @kept_out
    def call(self, divisor: int) -> None:
        """Divide."""
        1 / divisor


def test_errors_are_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two failures, one line that names the call and the error; a good call counts nothing."""
    fragile = Fragile()

    fragile.call(0)
    fragile.call(1)
    fragile.call(0)

    assert fragile.failures == 2
    assert len(caplog.records) == 1
    assert "Fragile.call: ZeroDivisionError" in caplog.text
