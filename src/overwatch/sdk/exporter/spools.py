"""Where spools lie on this machine, and what each says of itself.

Rules: one folder for each life of a producer, under a root of this user's own; no part of a path is taken
from outside as it is. Must not know what lies in a spool.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from overwatch.journal import is_held

META: Final = "meta.json"
_LONGEST_META: Final = 64 << 10
_LONGEST_PART: Final = 48
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.]+")


class SpoolMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Whose requests a spool holds."""

    run_id: str
    role: str
    rank: int
    epoch: str
    """UUID of this life of the producer."""
    pid: int
    """The process that spools."""
    rings: str | None = None
    """Folder of the rings that the requests come from."""
    endpoint: str | None = None
    """OTLP endpoint as the trainer asked for it."""
    otlp_env: dict[str, str] | None = None
    """What of its environment decides the destination: see `overwatch.sdk.trainer_env`."""
    created: int
    """Unix nanoseconds."""


_meta: Final = msgspec.json.Decoder(SpoolMeta).decode


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A spool that no process holds."""

    path: Path
    meta: SpoolMeta


def spool_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's spools: `$OVERWATCH_SPOOL_DIR`, else under the user's state."""
    if given := env.get("OVERWATCH_SPOOL_DIR"):
        return Path(given)
    state = env.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "overwatch" / "spool"
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 never raises, as Path.home does
    if home.startswith("/"):
        return Path(home) / ".local" / "state" / "overwatch" / "spool"
    return Path(tempfile.gettempdir()) / f"overwatch-{os.getuid()}" / "spool"


def spool_folder(root: Path, meta: SpoolMeta) -> Path:
    """The folder of one producer's life."""
    return root / "-".join((_part(meta.run_id), _part(meta.role), str(int(meta.rank)), _part(meta.epoch)))


def orphans(root: Path) -> list[Orphan]:
    """The spools under `root` that no process holds, oldest first; what is none is passed over."""
    try:
        folders = list(root.iterdir())
    except OSError:
        return []
    found = []
    for folder in folders:
        try:
            if not is_held(folder):
                found.append(Orphan(path=folder, meta=read_meta(folder)))
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda orphan: (orphan.meta.created, orphan.path))


def read_meta(folder: Path) -> SpoolMeta:
    """What a spool says of itself. Raises `OSError`, or `ValueError` when it says nothing of use."""
    fd = os.open(folder / META, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(fd, _LONGEST_META)
    finally:
        os.close(fd)
    return _meta(data)


def _part(text: str) -> str:
    """A name as part of a path: as it is where that is safe, else what is safe of it and a digest."""
    safe = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST_PART]
    if safe == text and safe:
        return safe
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{safe}_{digest}" if safe else digest
