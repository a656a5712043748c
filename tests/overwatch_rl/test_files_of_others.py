"""Files that somebody else may have put there: a regular file of bounded size, or an error at once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch_rl.artifacts.signing import Signer
from overwatch_rl.checkpoints.manifest import MANIFEST
from overwatch_rl.checkpoints.reading import verified
from overwatch_rl.web.authorisation import read_token

READERS: dict[str, Callable[[Path], object]] = {
    "token": read_token,
    "key": Signer,
    "checkpoint": lambda path: verified(path.parent),
}
ODD: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "sparse": lambda path: (path.touch(0o600), os.truncate(path, 8 << 30)),
}


@pytest.mark.parametrize("odd", sorted(ODD))
@pytest.mark.parametrize("reader", sorted(READERS))
def test_what_is_no_regular_file_of_bounded_size_is_refused(tmp_path: Path, reader: str, odd: str) -> None:
    """It is named, and nobody waits for it."""
    path = tmp_path / MANIFEST
    ODD[odd](path)

    with pytest.raises((OSError, ValueError), match=MANIFEST):
        READERS[reader](path)
