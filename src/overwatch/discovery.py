"""Where a running collector is found on this machine when nothing else says so.

Owns the discovery file: its place, its shape, and reading it without ever failing. The collector writes
it, the SDK and the TUI read it. Must not know what is behind the endpoints.
"""

import os
import tempfile
from pathlib import Path

import msgspec


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
    health: str | None = None
    recording: str | None = None
    """Folder of the recording that it writes, if it writes one."""


def path() -> Path:
    """The discovery file of this user: under `$XDG_RUNTIME_DIR`, else a folder of their own in TMPDIR."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = (
        Path(runtime) / "overwatch" if runtime else Path(tempfile.gettempdir()) / f"overwatch-{os.getuid()}"
    )
    return folder / "collector.json"


def write(endpoints: Endpoints) -> Path:
    """Announce a collector, readable by this user alone; replaces what was there."""
    target = path()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    scratch.touch(mode=0o600)
    scratch.write_bytes(msgspec.json.encode(endpoints))
    scratch.replace(target)
    return target


def read() -> Endpoints | None:
    """The announced collector if its process lives and the file is this user's own, else `None`."""
    target = path()
    try:
        if target.stat().st_uid != os.getuid():
            return None
        endpoints = msgspec.json.decode(target.read_bytes(), type=Endpoints)
        os.kill(endpoints.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return endpoints


def remove(pid: int) -> None:
    """Withdraw the announcement if it is that of process `pid`."""
    found = read()
    if found is not None and found.pid == pid:
        path().unlink(missing_ok=True)
