"""The place of checkpoints, a folder or an object store: what lies there, and how one is added.

Rules: a reader finds all of a checkpoint or nothing: its files are written, each forced to the disk or read
back, then the manifest, then `latest` is replaced on the condition that it is as it was read; what is no
longer kept goes last, its manifest first. `latest` names the lineage that may write here: a training that
goes on in an object store claims the next one, and a writer of an earlier one is refused, also one that
outlived its trainer. A folder has a lock besides. Each small file names its own hash, and one that comes
damaged is read again, since that may have happened on the way. Must not import torch.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote
from uuid import uuid4

import msgspec
import zstandard
from safetensors import SafetensorError, TensorSpec, serialize

from overwatch.objects.backends import Held, Tag
from overwatch.objects.digests import sha256_of
from overwatch.objects.retrying import Patience
from overwatch.objects.store import ConflictError, Store, is_remote, open_store
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.signing import Signer
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.checkpoints.manifest import (
    BEST,
    EVALUATIONS,
    FORMAT,
    LATEST,
    MANIFEST,
    PACKED,
    STATE,
    Evaluation,
    FileEntry,
    Manifest,
    Scored,
    Sealed,
    State,
    TensorEntry,
    bytes_of,
    seal_of,
    sealed,
    unsealed,
)

Files: TypeAlias = Mapping[str, Mapping[str, TensorSpec]]
"""By file, then by name: the tensors of a checkpoint."""
_MOST_ZSTD: Final = 19


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoints stay."""

    keep: int = 3
    """The newest; the best stays besides."""

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the value."""
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; use 1 or more")


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """How checkpoints are written."""

    zstd: int = 0
    """Level of compression; 0 is none, the default: two cores do not compress as fast as a disk writes."""
    key: Path | None = None
    """File of the private key that signs manifests; `None` leaves them without a signature."""
    patience: Patience = Patience()
    """Of each operation on an object store."""

    def __post_init__(self) -> None:
        """Raise `ValueError` naming the value."""
        if not 0 <= self.zstd <= _MOST_ZSTD:
            raise ValueError(f"zstd is {self.zstd}; use a level of 1 to {_MOST_ZSTD}, or 0 for none")


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is there."""

    where: str
    """Its folder or URI."""
    size: int
    manifest: Manifest


def manifest_of(
    state: State, files: Files, entries: Mapping[str, FileEntry], best_by: Scored, key: Path | None
) -> Manifest:
    """What a checkpoint consists of, signed if there is a key, sealed. Raises `ValueError` of a bad key."""
    manifest = Manifest(
        format=FORMAT,
        run_id=state.run_id,
        lineage=state.lineage,
        updates=state.updates,
        number=state.number,
        score=state.score,
        best_by=best_by,
        config=state.config,
        config_hash=state.config_hash,
        tensors={
            f"{name}:{key}": TensorEntry(
                file=name, dtype=str(spec.dtype), shape=tuple(spec.shape), xxh3=xxh3_of(memory_of(spec))
            )
            for name, tensors in files.items()
            for key, spec in tensors.items()
        },
        files=dict(entries),
    )
    if key is not None:
        manifest = Signer(key).sign(manifest)
    return manifest.sealed()


def memory_of(spec: TensorSpec) -> memoryview:
    """The bytes of a tensor."""
    held: Any = (ctypes.c_char * spec.data_len).from_address(spec.data_ptr)
    return memoryview(held).cast("B")


def compressed(data: bytes, level: int) -> bytes:
    """By zstd, with its own checksum."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)


def best_of(
    manifests: Iterable[Manifest], evaluations: Iterable[Evaluation], run_id: str
) -> tuple[Version | None, Scored]:
    """The best of a run, and by which return: that of evaluations where one of the versions has any.

    Of equal ones the oldest.
    """
    own = {one.version: one.score for one in manifests if one.run_id == run_id}
    evaluated = {one.version: one.mean_return for one in evaluations if one.version in own}
    found = evaluated or own
    scores = {version: score for version, score in sorted(found.items()) if _is_number(score)}
    best = max(scores, key=lambda version: scores[version] or 0.0, default=None)
    return best, "evaluation" if evaluated else "training"


def _is_number(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


_READS: Final = 4
"""Of a small file that comes damaged."""


class Pointer(Sealed, frozen=True, kw_only=True):
    """What `latest` and `best` hold."""

    name: str | None
    """The newest, or the best, checkpoint; `None` before the first."""
    lineage: int
    """Of `latest`: the one that may write."""
    by: Scored | None = None
    """Of `best`: by which return."""
    writer: str
    """Another one each time, so that no two writers ever write the same bytes."""


def versions_in(store: Store) -> dict[Version, list[str]]:
    """By version, the files of each folder there that is called like a checkpoint."""
    found: dict[Version, list[str]] = {}
    for entry in store.list():
        folder, _, file = entry.key.partition("/")
        if (version := parse(folder)) is not None:
            found.setdefault(version, []).append(file)
    return found


def read_pointer(store: Store, key: str) -> tuple[Pointer | None, Tag | None]:
    """`latest` or `best`, `None` where it is damaged, and its tag, `None` where there is none."""
    held = _steady(store, key, lambda data: unsealed(data, Pointer) is not None)
    return (None, None) if held is None else (unsealed(held.data, Pointer), held.tag)


def stored_manifest(store: Store, version: Version) -> bytes:
    """The manifest of a version as it is stored.

    Raises `ValueError` where there is none or it is damaged, `OSError` where it cannot be read.
    """
    where = store.uri(f"{version}/{MANIFEST}")
    held = _steady(store, f"{version}/{MANIFEST}", _is_sealed)
    if held is None:
        raise ValueError(f"there is no {where}: the checkpoint was not written to its end")
    if not _is_sealed(held.data):
        raise ValueError(f"{where} has another hash than it names")
    return held.data


def manifests(store: Store) -> dict[Version, Manifest]:
    """Of those that are whole, as far as that shows without reading their tensors."""
    found: dict[Version, Manifest] = {}
    for version, names in versions_in(store).items():
        if MANIFEST in names:
            with suppress(ValueError):
                found[version] = msgspec.json.decode(stored_manifest(store, version), type=Manifest)
    return found


def evaluations(store: Store) -> list[Evaluation]:
    """Of all versions that were evaluated, as far as they are whole."""
    found = []
    for entry in store.list(EVALUATIONS):
        held = _steady(store, entry.key, lambda data: unsealed(data, Evaluation) is not None)
        one = None if held is None else unsealed(held.data, Evaluation)
        if one is not None:
            found.append(one)
    return found


def _steady(store: Store, key: str, is_sound: Callable[[bytes], bool]) -> Held | None:
    """A file, read again a few times while it is damaged: that may have happened on the way."""
    held = None
    for _ in range(_READS):
        held = store.get(key)
        if held is None or is_sound(held.data):
            break
    return held


def _is_sealed(data: bytes) -> bool:
    try:
        return seal_of(data) == msgspec.json.decode(data, type=dict[str, object]).get("sha256")
    except ValueError:
        return False


_CLAIMS: Final = 20
"""Tries against others that replace `latest` at the same time."""
_ONCE: Final = Patience(deadline_s=0.001)
"""Of a folder: what fails there fails again at once."""


class FencedError(Exception):
    """A later lineage writes here now."""


def open_place(place: Path | str, patience: Patience | None = None) -> Store:
    """The store of a place; `patience` is for requests to an object store."""
    return open_store(place, patience if is_remote(place) else _ONCE)


def location(store: Store, key: str = "") -> str:
    """Where something lies: a path on this machine, or a URI."""
    return unquote(store.uri(key).removeprefix("file://"))


def claim(store: Store) -> int:
    """Become the one that writes here; the lineage. Raises `OSError`."""
    newest = max((version.lineage for version in versions_in(store)), default=0)

    def claimed(before: Pointer | None) -> Pointer:
        lineage = 1 + max(newest, 0 if before is None else before.lineage)
        return Pointer(name=before.name if before else None, lineage=lineage, writer=uuid4().hex)

    return _move_latest(store, claimed).lineage


def write_checkpoint(store: Store, state: State, files: Files, retention: Retention, saving: Saving) -> Saved:
    """Write it. Raises `OSError`, and `FencedError` when another training goes on from here."""
    _unfenced(store, state, read_pointer(store, LATEST)[0])
    folder, name = _folder_of(store), str(state.version)
    _sweep(folder)
    known, found = manifests(store), evaluations(store)
    _, best_by = best_of(known.values(), found, state.run_id)
    try:
        manifest, size = _fill(store, state, files, best_by=best_by, saving=saving)
    except BaseException:
        if folder is not None:  # Its files would fill the disk until the next save.
            _remove(store, state.version, versions_in(store).get(state.version, ()))
        raise
    _move_latest(store, lambda before: _unfenced(store, state, before))
    best, by = best_of((known | {state.version: manifest}).values(), found, state.run_id)
    pointed, _ = read_pointer(store, BEST)
    if best is not None and (pointed is None or (pointed.name, pointed.by) != (str(best), by)):
        pointer = Pointer(name=str(best), lineage=best.lineage, by=by, writer=uuid4().hex)
        store.put(BEST, sealed(pointer), verify=folder is None)
    prune(store, retention, state.version)
    return Saved(where=location(store, name), size=size, manifest=manifest)


def _fill(
    store: Store, state: State, files: Files, *, best_by: Scored, saving: Saving
) -> tuple[Manifest, int]:
    entries: dict[str, FileEntry] = {}

    def put(file: str, data: bytes) -> FileEntry:
        key = f"{state.version}/{file}"
        store.put(key, data, verify=_folder_of(store) is None)
        return FileEntry(bytes=len(data), sha256=sha256_of(data), uri=store.uri(key))

    for file, tensors in files.items():
        try:
            data = serialize(dict(tensors))
        except SafetensorError as error:
            raise OSError(f"{store.uri(f'{state.version}/{file}')}: {error}") from error
        if saving.zstd:
            entries[file + PACKED] = put(file + PACKED, compressed(data, saving.zstd))
        else:
            entries[file] = put(file, data)
    entries[STATE] = put(STATE, bytes_of(state))
    manifest = manifest_of(state, files, entries, best_by, saving.key)
    last = put(MANIFEST, bytes_of(manifest))
    return manifest, sum(entry.bytes for entry in (*entries.values(), last))


def prune(store: Store, retention: Retention, saved: Version) -> None:
    """Remove all but the newest, the best and the one that was saved just now."""
    found = versions_in(store)
    whole = sorted((one for one, names in found.items() if MANIFEST in names), reverse=True)
    kept = {str(one) for one in (saved, *whole[: retention.keep])}
    best, _ = read_pointer(store, BEST)
    if best is not None and best.name is not None:
        kept.add(best.name)
    for version in sorted(found):
        if version < saved and str(version) not in kept:
            _remove(store, version, found[version])


def _remove(store: Store, version: Version, names: Iterable[str]) -> None:
    """The manifest first: what is left of a removal that was cut off is no checkpoint."""
    store.delete(f"{version}/{MANIFEST}", *(f"{version}/{name}" for name in names if name != MANIFEST))


def _sweep(folder: Path | None) -> None:
    """Remove what a save that was killed left of the file it wrote."""
    for left in () if folder is None else [*folder.glob(".*.partial"), *folder.glob("*/.*.partial")]:
        left.unlink(missing_ok=True)
        with suppress(OSError):
            left.parent.rmdir()


def _folder_of(store: Store) -> Path | None:
    where = location(store)
    return Path(where) if where.startswith("/") else None


def _unfenced(store: Store, state: State, latest: Pointer | None) -> Pointer:
    """What `latest` is to be, where this lineage may still write. Raises `FencedError`."""
    if latest is not None and latest.lineage > state.lineage:
        raise FencedError(
            f"{store.uri()} is written by another training, of lineage {latest.lineage}; this one is of "
            f"lineage {state.lineage} and ends"
        )
    return Pointer(name=str(state.version), lineage=state.lineage, writer=uuid4().hex)


def _move_latest(store: Store, moved: Callable[[Pointer | None], Pointer]) -> Pointer:
    """Replace `latest` by what follows from it as it is."""
    for _ in range(_CLAIMS):
        before, tag = read_pointer(store, LATEST)
        after = moved(before)
        with suppress(ConflictError):
            store.replace(LATEST, sealed(after), tag)
            return after
    raise OSError(f"{store.uri(LATEST)} is replaced by others all the time; end the other trainings there")
