"""Files that others may have put there: what is not regular, or too large, is refused, never waited for."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from overwatch import config, discovery
from overwatch.cli.fleet import _read as addresses
from overwatch.collector.auth import Role, TokenConfig, Tokens, TokensConfig
from overwatch.collector.tls import Certificates, TlsConfig
from overwatch.delivery.connection import tls_context
from overwatch.delivery.destination import Tls, first_token
from overwatch.objects.store import open_store
from overwatch.recordings.checkpoints import read_bounded
from overwatch.regular import SMALL_BYTES, read_regular
from overwatch.serve.archive import _head_of
from overwatch.tui import settings

WITHIN_S = 60.0
"""For a refusal, on a machine with much other work."""


def _tokens(file: Path) -> None:
    tokens = Tokens(TokensConfig(ingest=TokenConfig(filename=file)))
    tokens.load()
    assert tokens.first(Role.INGEST) is None


READERS: dict[str, Callable[[Path], object]] = {
    "configuration": lambda file: config.load(file, ()),
    "settings of the terminal": settings.read,
    "list of collectors": addresses,
    "token file of the collector": _tokens,
    "certificate of the collector": lambda file: Certificates(
        TlsConfig(cert_file=file, key_file=file), lambda _: None
    ).load(),
    "token file of a sender": first_token,
    "certificate of a sender": lambda file: tls_context(Tls(authorities=str(file))),
    "announcement": discovery.read,
    "object of a store": lambda file: open_store(file.parent).get(file.name),
    "checkpoint": read_bounded,
    "archived run": _head_of,
}
BOUNDED = set(READERS) - {"archived run"}
"""Of the other parts are read."""


def _placed(folder: Path, kind: str) -> Path:
    file = folder / "planted"
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "folder":
            file.mkdir()
        case "sparse":
            with file.open("wb") as opened:
                os.truncate(opened.fileno(), 8 << 30)
    return file


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "sparse"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, name: str, kind: str) -> None:
    """A FIFO has no writer, a device no end, a sparse file more than memory: an error, or nothing to read."""
    if kind == "sparse" and name not in BOUNDED:
        pytest.skip("it is read in parts")
    if kind == "fifo" and name == "configuration":
        pytest.skip("who names it may write it")
    file = _placed(tmp_path, kind)
    met: list[object] = []

    def read() -> None:
        try:
            met.append(READERS[name](file))
        except (OSError, ValueError) as error:
            met.append(str(error))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(WITHIN_S)

    assert not reading.is_alive()
    assert met
    assert met[0] is None or "planted" in str(met[0])


def test_what_fits_is_read_whole(tmp_path: Path) -> None:
    """A link is followed, as in a volume of Kubernetes; a file of `/proc` has no size."""
    (tmp_path / "..data").write_bytes(b"x" * SMALL_BYTES)
    (tmp_path / "token").symlink_to("..data")

    assert len(read_regular(tmp_path / "token")) == SMALL_BYTES
    assert read_regular(Path("/proc/self/status"))
    with pytest.raises(OSError, match="larger than the 9 bytes"):
        read_regular(tmp_path / "token", 9)
