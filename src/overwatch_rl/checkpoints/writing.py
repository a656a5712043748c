"""Writes one checkpoint into a folder, so that a reader finds all of it or nothing.

Rules: files are written into a folder of another name, forced to the disk, the manifest last, and the folder
is renamed; `latest` and `best` are replaced the same way. A save that was cut off leaves a folder with
`.partial` in its name, which the next save removes. Must not import torch.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from safetensors import SafetensorError, serialize_file

from overwatch.platform import sync, sync_folder
from overwatch.regular import read_regular
from overwatch_rl.checkpoints.content import Files, Retention, Saved, Saving, best_of, compressed, manifest_of
from overwatch_rl.checkpoints.manifest import (
    BEST,
    EVALUATIONS,
    LATEST,
    MANIFEST,
    MOST_BYTES,
    PACKED,
    PARTIAL,
    STATE,
    Evaluation,
    FileEntry,
    Manifest,
    Scored,
    State,
    bytes_of,
    unsealed,
    version_of,
)

T = TypeVar("T")


def write_checkpoint(folder: Path, state: State, files: Files, retention: Retention, saving: Saving) -> Saved:
    """Write it. Raises `OSError`; what lies in `folder` is as it was then."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f".*{PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)
    name = str(state.version)
    partial = folder / f".{name}{PARTIAL}"
    manifests = [one for one in _manifests(folder) if one.version != state.version]
    evaluations = _evaluations(folder)
    _, best_by = best_of(manifests, evaluations, state.run_id)
    try:
        manifest, size = _fill(partial, folder / name, state, files, best_by=best_by, saving=saving)
        if (folder / name).exists():  # Of the same updates: it was damaged, or saved once more at the end.
            _remove(folder / name)
        partial.rename(folder / name)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _point(folder, LATEST, name)
    best, _ = best_of([*manifests, manifest], evaluations, state.run_id)
    if best is not None:
        _point(folder, BEST, str(best))
    _prune(folder, retention)
    return Saved(where=str(folder / name), size=size, manifest=manifest)


def _fill(
    partial: Path, final: Path, state: State, files: Files, *, best_by: Scored, saving: Saving
) -> tuple[Manifest, int]:
    partial.mkdir()
    entries: dict[str, FileEntry] = {}
    for name, tensors in files.items():
        try:
            serialize_file(dict(tensors), partial / name)
        except SafetensorError as error:
            raise OSError(f"{partial / name}: {error}") from error
        stored = name
        if saving.zstd:
            stored = name + PACKED
            (partial / stored).write_bytes(compressed((partial / name).read_bytes(), saving.zstd))
            (partial / name).unlink()
        entries[stored] = _kept(partial / stored, final)
    (partial / STATE).write_bytes(bytes_of(state))
    entries[STATE] = _kept(partial / STATE, final)
    manifest = manifest_of(state, files, entries, best_by, saving.key)
    (partial / MANIFEST).write_bytes(bytes_of(manifest))
    last = _kept(partial / MANIFEST, final)
    sync_folder(partial)
    return manifest, sum(entry.bytes for entry in (*entries.values(), last))


def _kept(path: Path, final: Path) -> FileEntry:
    """Force a file to the disk, readable as others of this user are; its size and hash."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), _mode())
        sync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return FileEntry(bytes=size, sha256=digest, uri=(final / path.name).absolute().as_uri())


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


def _manifests(folder: Path) -> list[Manifest]:
    """Of all that can be read, oldest first, each with its return."""
    found = []
    for name in sorted(one.name for one in folder.iterdir() if version_of(one.name) is not None):
        with suppress(OSError, ValueError):
            manifest = _read(folder / name / MANIFEST, Manifest)
            state = _read(folder / name / STATE, State)
            found.append(msgspec.structs.replace(manifest, score=state.score))
    return found


def _read(path: Path, kind: type[T]) -> T:
    return msgspec.json.decode(read_regular(path, MOST_BYTES), type=kind)


def _evaluations(folder: Path) -> list[Evaluation]:
    found = [
        unsealed(read_regular(one, MOST_BYTES), Evaluation) for one in (folder / EVALUATIONS).glob("*.json")
    ]
    return [one for one in found if one is not None]


def _prune(folder: Path, retention: Retention) -> None:
    kept = set()
    with suppress(OSError):
        kept.add(read_regular(folder / BEST, MOST_BYTES).decode().strip())
    found = {one.name: version for one in folder.iterdir() if (version := version_of(one.name)) is not None}
    newest = sorted(found, key=lambda name: found[name], reverse=True)
    for name in newest[retention.keep :]:
        if name not in kept:
            _remove(folder / name)


def _remove(checkpoint: Path) -> None:
    """The manifest first: what is left of a removal that was cut off is no checkpoint."""
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(checkpoint)
