"""Writes one checkpoint, so that a reader finds all of it or nothing.

Rules: files are written into a folder of another name, forced to the disk, the manifest last, and the folder
is renamed; `latest` and `best` are replaced the same way. A save that was cut off leaves a folder with
`.partial` in its name, which the next save removes. Must not import torch.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from safetensors import SafetensorError, TensorSpec, serialize_file

from overwatch.platform import sync, sync_folder
from overwatch_rl.checkpoints.manifest import (
    BEST,
    FORMAT,
    LATEST,
    MANIFEST,
    PARTIAL,
    STATE,
    FileEntry,
    Manifest,
    State,
    TensorEntry,
    bytes_of,
    name_of,
    version_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which checkpoints stay."""

    keep: int = 3
    """The newest; the best stays besides."""

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; use 1 or more")


def write_checkpoint(
    folder: Path, state: State, files: Mapping[str, Mapping[str, TensorSpec]], retention: Retention
) -> tuple[Path, int]:
    """The checkpoint's folder and its bytes. Raises `OSError`; what lies in `folder` is as it was then."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f".*{PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)
    name = name_of(state.lineage, state.updates)
    partial = folder / f".{name}{PARTIAL}"
    try:
        size = _fill(partial, state, files)
        if (folder / name).exists():  # Of the same updates: it was damaged, or saved once more at the end.
            _remove(folder / name)
        partial.rename(folder / name)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _point(folder, LATEST, name)
    _rate(folder, name, state)
    _prune(folder, retention)
    return folder / name, size


def _fill(partial: Path, state: State, files: Mapping[str, Mapping[str, TensorSpec]]) -> int:
    partial.mkdir()
    entries: dict[str, FileEntry] = {}
    for name, tensors in files.items():
        try:
            serialize_file(dict(tensors), partial / name)
        except SafetensorError as error:
            raise OSError(f"{partial / name}: {error}") from error
        entries[name] = _kept(partial / name)
    (partial / STATE).write_bytes(bytes_of(state))
    entries[STATE] = _kept(partial / STATE)
    manifest = Manifest(
        format=FORMAT,
        run_id=state.run_id,
        lineage=state.lineage,
        updates=state.updates,
        config_hash=state.config_hash,
        tensors={
            f"{name}:{key}": TensorEntry(file=name, dtype=str(spec.dtype), shape=tuple(spec.shape))
            for name, tensors in files.items()
            for key, spec in tensors.items()
        },
        files=entries,
    )
    (partial / MANIFEST).write_bytes(bytes_of(manifest.sealed()))
    last = _kept(partial / MANIFEST)
    sync_folder(partial)
    return sum(entry.bytes for entry in (*entries.values(), last))


def _kept(path: Path) -> FileEntry:
    """Force a file to the disk, readable as others of this user are; its size and hash."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), _mode())
        sync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def _mode() -> int:
    hidden = os.umask(0o077)
    os.umask(hidden)
    return 0o666 & ~hidden


def _point(folder: Path, pointer: str, name: str) -> None:
    fresh = folder / f".{pointer}.new"
    with fresh.open("w", encoding="utf-8") as file:
        file.write(name + "\n")
        file.flush()
        sync(file.fileno())
    fresh.replace(folder / pointer)
    sync_folder(folder)


def _rate(folder: Path, name: str, state: State) -> None:
    """Make it the best, unless its run has a better one."""
    if state.score is None:
        return
    best: State | None = None
    with suppress(OSError, msgspec.DecodeError):
        known = folder / (folder / BEST).read_text(encoding="utf-8").strip() / STATE
        best = msgspec.json.decode(known.read_bytes(), type=State)
    if best is None or best.run_id != state.run_id or best.score is None or state.score > best.score:
        _point(folder, BEST, name)


def _prune(folder: Path, retention: Retention) -> None:
    kept = set()
    with suppress(OSError):
        kept.add((folder / BEST).read_text(encoding="utf-8").strip())
    found = {one.name: version for one in folder.iterdir() if (version := version_of(one.name)) is not None}
    newest = sorted(found, key=lambda name: found[name], reverse=True)
    for name in newest[retention.keep :]:
        if name not in kept:
            _remove(folder / name)


def _remove(checkpoint: Path) -> None:
    """The manifest first: what is left of a removal that was cut off is no checkpoint."""
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoint)
