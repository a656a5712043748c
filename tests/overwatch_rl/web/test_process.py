"""What the processes of HTTP servers share."""

import pytest

from overwatch_rl.web.process import address


def test_addresses_are_read() -> None:
    """With and without a host, and the other kind in brackets."""
    assert address("trainer:80") == ("trainer", 80)
    for wrong in ("8000", "host:", "host:99999", "host:x"):
        with pytest.raises(ValueError, match="is not host:port"):
            address(wrong)
