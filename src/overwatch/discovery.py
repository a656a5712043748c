"""Where a running collector is found on this machine when nothing else names it.

Owns the discovery file: its place, its shape, and reading it without ever failing. The collector writes
it, the SDK and the TUI read it. Rules: it holds tokens, so it and its folder are this user's alone, and what
another user could have put there is not used. Must not know what is behind the endpoints.
"""

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from overwatch.regular import SMALL_BYTES, open_regular

Role = Literal["ingest", "read", "control"]

VARIABLE: Final = "OVERWATCH_TOKEN"
"""Environment variable: the bearer token for collectors that are read by name, e.g. on other machines."""

_LOCAL: Final = {"localhost": "127.0.0.1"}


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bearer token for each role that needs one; they do not show in a representation."""

    ingest: str | None = None
    read: str | None = None
    control: str | None = None

    def __repr__(self) -> str:
        needed = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"Tokens({', '.join(needed)})"


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """What a collector listens on, as URLs."""

    pid: int
    otlp_http: str | None = None
    """e.g. `http://127.0.0.1:4318`."""
    otlp_grpc: str | None = None
    """e.g. `http://127.0.0.1:4317`."""
    view: str | None = None
    """e.g. `ws://127.0.0.1:4380`."""
    metrics: str | None = None
    telemetry: str | None = None
    """The collector's own metrics."""
    health: str | None = None
    recording: str | None = None
    """Folder of the recording that it writes, if it writes one."""
    data: str | None = None
    """Folder of its journal."""
    tokens: Tokens = Tokens()
    """What its doors ask for."""

    @property
    def page(self) -> str | None:
        """The page for a browser, which is at the address of the view.

        >>> Endpoints(pid=1, view="ws://127.0.0.1:4380").page
        'http://127.0.0.1:4380/'
        """
        return None if self.view is None else f"{self.view.replace('ws', 'http', 1)}/"


_endpoints: Final = msgspec.json.Decoder(Endpoints).decode


def path(env: Mapping[str, str] = os.environ) -> Path:
    """The discovery file of this user: under `$XDG_RUNTIME_DIR`, else a folder of their own in TMPDIR.

    An environment of another process that names neither is as good as this one's.
    """
    runtime, scratch = env.get("XDG_RUNTIME_DIR"), env.get("TMPDIR")
    if env is os.environ:
        scratch = tempfile.gettempdir()
    elif not runtime and not scratch:
        return path()
    folder = Path(runtime) / "overwatch" if runtime else Path(str(scratch)) / f"overwatch-{os.getuid()}"
    return folder / "collector.json"


def write(endpoints: Endpoints) -> Path:
    """Announce a collector, readable by this user alone; replaces what was there.

    Raises `OSError` when the folder is another user's, who could then read or replace the tokens.
    """
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = target.parent.lstat()
    if folder.st_uid != os.getuid() or not stat.S_ISDIR(folder.st_mode):
        raise PermissionError(
            f"{target.parent} is not this user's own folder; remove it or set XDG_RUNTIME_DIR"
        )
    if stat.S_IMODE(folder.st_mode) & 0o077:
        target.parent.chmod(0o700)
    write_private(target, msgspec.json.encode(endpoints))
    return target


def write_private(target: Path, content: bytes) -> None:
    """Put a file that this user alone can read in the place of what was there; raises `OSError`."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    # Exclusive, so that neither a link nor an open file that another program put there is written to.
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    scratch.replace(target)


def token(url: str, role: Role, announced: Path | None = None) -> str | None:
    """The bearer token for an address: the announced collector's, if this is one of its addresses."""
    try:
        wanted = place_of(url)
    except ValueError:
        return None
    found = read(announced)
    if found is None:
        return None
    places = (found.otlp_http, found.otlp_grpc, found.view, found.metrics)
    if wanted not in {place_of(one) for one in places if one is not None}:
        return None
    given: str | None = getattr(found.tokens, role)
    return given


def token_to_read(url: str) -> str | None:
    """The bearer token to read a collector with: the announced one's, else that of `OVERWATCH_TOKEN`."""
    return token(url, "read") or os.environ.get(VARIABLE) or None


def token_to_control(url: str) -> str | None:
    """The bearer token to acknowledge with: the announced one's, else that of `OVERWATCH_TOKEN`."""
    return token(url, "control") or os.environ.get(VARIABLE) or None


def place_of(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL, or of `HOST:PORT`; by any name of this machine the same host."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    host = (parts.hostname or "").lower()
    return _LOCAL.get(host, host), parts.port


def read(announced: Path | None = None) -> Endpoints | None:
    """The announced collector if its process lives and the file is this user's own, else `None`."""
    try:
        # Without a folder for temporary files, `path` raises: nothing is announced there.
        with open_regular(announced or path()) as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            endpoints = _endpoints(file.read(SMALL_BYTES))
        os.kill(endpoints.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return endpoints


def remove(pid: int) -> None:
    """Withdraw the announcement if it is that of process `pid`."""
    found = read()
    if found is not None and found.pid == pid:
        path().unlink(missing_ok=True)
