"""What a person is shown of an error of the operating system."""

import errno
import os
from pathlib import Path

import pytest

from overwatch.collector.extensions.file_storage import described


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_error_names_the_path_the_reason_and_a_fix(number: int) -> None:
    """Whatever its number."""
    path, _, rest = described(OSError(number, os.strerror(number), "/data/x")).partition(": ")
    reason, _, fix = rest.partition("; ")

    assert path == "/data/x"
    assert reason == os.strerror(number)
    assert fix


def test_the_place_that_was_asked_for_goes_first() -> None:
    """A scratch name states nothing to a person."""
    error = OSError(errno.ENOENT, "No such file or directory", ".scratch.17")
    assert described(error, Path("/run/ready")).startswith("/run/ready: No such file")


def test_a_message_that_was_written_stays() -> None:
    """With or without a number."""
    assert described(OSError("in use by process 7")) == "in use by process 7"
    assert described(OSError(errno.EPERM, "/data belongs to user 7")) == "/data belongs to user 7"
