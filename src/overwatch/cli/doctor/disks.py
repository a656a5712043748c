"""Disk: room and permission for the journal, recordings, snapshots, the spool and the rings."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from overwatch.cli.doctor.verdict import Verdict, failure, ok, warning
from overwatch.collector.budget import look, summary
from overwatch.collector.exporters.otlp_file.config import OtlpFileConfig
from overwatch.collector.exporters.snapshots import SnapshotsConfig
from overwatch.collector.settings import CollectorConfig, written
from overwatch.platform import SHARED_MEMORY

AREA: Final = "disk"
LEAST: Final = 256 << 20
"""Bytes below which nothing can be recorded for long."""
RINGS: Final = 64 << 20
"""Bytes that the rings of one trainer and its spares take at most, in /dev/shm."""
_MIB: Final = 1 << 20
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p"})


def disks(config: CollectorConfig, spool: Path, shared: Path = SHARED_MEMORY) -> Iterator[Verdict]:
    """One verdict for each place that is written to."""
    yield from _storage(config)
    yield from _room("journal", config.data_folder, LEAST, is_log=True)
    for name, files in config.every(OtlpFileConfig).items():
        yield from _room("recordings" if name == "otlp_file" else f"recordings of {name}", files.path, LEAST)
    yield from _room("snapshots", config.one(SnapshotsConfig).path.parent, LEAST)
    yield from _room("spool", spool, LEAST)
    if shared.is_dir():
        yield from _room("rings", shared, RINGS, least=RINGS)


def _storage(config: CollectorConfig) -> Iterator[Verdict]:
    """The disk budget: what there is of it, and whether the volume has room for the rest."""
    files = written(config)
    try:
        usage = look(files)
        found = f"storage: {summary(files, usage, time.time())}"
    except OSError as error:
        yield failure(AREA, f"storage: {error.filename}: {error.strerror}", "make it readable")
        return
    if usage.room >= usage.most:
        yield ok(AREA, found)
        return
    yield warning(
        AREA,
        f"{found}; others leave room for {usage.room / _MIB:,.0f} MiB on the volume",
        "make room, or set extensions.file_storage.budget_mib; snapshots and old recordings go first",
    )


def _room(
    what: str, folder: Path, wanted: int, *, least: int = LEAST, is_log: bool = False
) -> Iterator[Verdict]:
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield failure(AREA, f"{what}: {there} is not a folder", f"remove it, or put {what} elsewhere")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield failure(AREA, f"{what}: {there} may not be written to", f"chown it, or put {what} elsewhere")
        return
    try:
        usage, state = shutil.disk_usage(there), os.statvfs(there)
    except OSError as error:
        yield failure(AREA, f"{what}: {there}: {error.strerror}", f"put {what} elsewhere")
        return
    free = f"{usage.free / _MIB:,.0f} MiB free at {folder}"
    if usage.free < least:
        yield failure(AREA, f"{what}: only {free}", f"make room: {least // _MIB} MiB are the least")
    elif state.f_files and not state.f_favail:
        yield failure(AREA, f"{what}: no inode is free at {folder}", "delete small files there")
    elif usage.free < wanted:
        yield warning(
            AREA,
            f"{what}: {free}, and may grow to {wanted // _MIB:,} MiB",
            "make room, or lower its limit; a full disk makes senders wait, nothing acknowledged is lost",
        )
    elif is_log and _kind(there) in _NETWORK:
        yield warning(
            AREA,
            f"{what}: {folder} is on {_kind(there)}, where a lock and a sync may not hold",
            "set OVERWATCH_DATA_DIR to a disk of this machine",
        )
    else:
        yield ok(AREA, f"{what}: {free}")


def _kind(folder: Path) -> str:
    """Type of the file system that a folder is on."""
    resolved = str(folder.resolve())
    mounts = [
        mount for mount in psutil.disk_partitions(all=True)
        if resolved == mount.mountpoint or resolved.startswith(mount.mountpoint.rstrip("/") + "/")
    ]  # fmt: skip
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else ""
