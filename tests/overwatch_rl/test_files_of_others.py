"""Files that somebody else may have put there: a regular file of bounded size, or an error at once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.artifacts.signing import Signer
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import MANIFEST
from overwatch_rl.checkpoints.reading import verified
from overwatch_rl.cli import main
from overwatch_rl.web.authorisation import read_token
from overwatch_rl.weights.channels import Place, StoreChannel
from overwatch_rl.weights.manifest import CURRENT, artifact_of

ONE = Version(1, 1)


def _as(key: str, read: Callable[[StoreChannel], object]) -> Callable[[Path], object]:
    """Read a file of the weights of a store, where the odd file lies instead of it."""

    def reader(path: Path) -> object:
        (path.parent / key).parent.mkdir()
        (path.parent / key).symlink_to(path)
        try:
            return read(StoreChannel(Place(url=str(path.parent), run_id="r")))
        except OSError as error:
            raise OSError(str(error).replace(key, path.name)) from error

    return reader


def _handler(file: Path) -> object:
    """`overwatch-rl grpo-handler` with the token of a file."""
    options = ("--server", "http://127.0.0.1:1", "--weights", str(file.parent), "--token-file", str(file))
    result = CliRunner().invoke(main, ["grpo-handler", *options])
    assert result.exit_code == 2, result.output
    raise ValueError(result.output)


READERS: dict[str, Callable[[Path], object]] = {
    "token": read_token,
    "token of a command": _handler,
    "weights": _as(CURRENT, lambda stored: stored.newest()),
    "artifact": _as(artifact_of(ONE), lambda stored: stored.artifact(ONE)),
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
