"""Writes one checkpoint into an object store, so that a reader finds all of it or nothing.

Rules: files are written and read back, then the manifest, then `latest` is replaced on the condition that it
is as it was read; what is no longer kept goes last, its manifest first. `latest` names the lineage that may
write here: a training that goes on claims the next one, and a writer of an earlier one is refused, also one
that outlived its trainer. Must not import torch.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final
from uuid import uuid4

from safetensors import SafetensorError, serialize

from overwatch.objects.backends import Tag
from overwatch.objects.digests import sha256_of
from overwatch.objects.store import ConflictError, Store
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints import remote
from overwatch_rl.checkpoints.content import Files, Retention, Saved, Saving, best_of, compressed, manifest_of
from overwatch_rl.checkpoints.manifest import (
    BEST,
    LATEST,
    MANIFEST,
    PACKED,
    STATE,
    FileEntry,
    Manifest,
    State,
    bytes_of,
    sealed,
)

_CLAIMS: Final = 20
"""Tries against others that replace `latest` at the same time."""


class FencedError(Exception):
    """A later lineage writes here now."""


def claim(store: Store) -> int:
    """Become the one that writes here; the lineage. Raises `OSError`."""
    for _ in range(_CLAIMS):
        before, tag = remote.read_pointer(store, LATEST)
        newest = max((version.lineage for version in remote.versions_in(store)), default=0)
        lineage = 1 + max(newest, 0 if before is None else before.lineage)
        claimed = remote.Pointer(name=before.name if before else None, lineage=lineage, writer=uuid4().hex)
        with suppress(ConflictError):
            store.replace(LATEST, sealed(claimed), tag)
            return lineage
    raise OSError(f"{store.uri(LATEST)} is replaced by others all the time; end the other trainings there")


def upload_checkpoint(
    store: Store, state: State, files: Files, retention: Retention, saving: Saving
) -> Saved:
    """Write it. Raises `OSError`, and `FencedError` when another training goes on from here."""
    _unfenced(store, state)
    name = str(state.version)
    manifests = remote.manifests(store)
    _, best_by = best_of(manifests.values(), remote.evaluations(store), state.run_id)
    entries: dict[str, FileEntry] = {}
    for file, tensors in files.items():
        try:
            data = serialize(dict(tensors))
        except SafetensorError as error:
            raise OSError(f"{store.uri(f'{name}/{file}')}: {error}") from error
        if saving.zstd:
            entries[file + PACKED] = _put(store, f"{name}/{file}{PACKED}", compressed(data, saving.zstd))
        else:
            entries[file] = _put(store, f"{name}/{file}", data)
    entries[STATE] = _put(store, f"{name}/{STATE}", bytes_of(state))
    manifest = manifest_of(state, files, entries, best_by, saving.key)
    last = _put(store, f"{name}/{MANIFEST}", bytes_of(manifest))
    _point(store, state)
    rate(store, manifests | {state.version: manifest}, state.run_id)
    prune(store, retention, state.version)
    size = sum(entry.bytes for entry in (*entries.values(), last))
    return Saved(where=store.uri(name), size=size, manifest=manifest)


def rate(store: Store, manifests: Mapping[Version, Manifest], run_id: str) -> None:
    """Let `best` name the best that is known."""
    version, by = best_of(manifests.values(), remote.evaluations(store), run_id)
    known, _ = remote.read_pointer(store, BEST)
    if version is not None and (known is None or (known.name, known.by) != (str(version), by)):
        best = remote.Pointer(name=str(version), lineage=version.lineage, by=by, writer=uuid4().hex)
        store.put(BEST, sealed(best), verify=True)


def prune(store: Store, retention: Retention, saved: Version) -> None:
    """Remove all but the newest, the best and the one that was saved just now."""
    found = remote.versions_in(store)
    whole = sorted((one for one, names in found.items() if MANIFEST in names), reverse=True)
    kept = {str(one) for one in (saved, *whole[: retention.keep])}
    best, _ = remote.read_pointer(store, BEST)
    if best is not None and best.name is not None:
        kept.add(best.name)
    for version in sorted(found):
        if version < saved and str(version) not in kept:
            remove(store, version, found[version])


def remove(store: Store, version: Version, names: Iterable[str]) -> None:
    """The manifest first: what is left of a removal that was cut off is no checkpoint."""
    store.delete(f"{version}/{MANIFEST}", *(f"{version}/{name}" for name in names if name != MANIFEST))


def _unfenced(store: Store, state: State) -> Tag | None:
    """The tag of `latest`, where this lineage may still write. Raises `FencedError`."""
    latest, tag = remote.read_pointer(store, LATEST)
    if latest is not None and latest.lineage > state.lineage:
        raise FencedError(
            f"{store.uri()} is written by another training, of lineage {latest.lineage}; this one is of "
            f"lineage {state.lineage} and ends"
        )
    return tag


def _point(store: Store, state: State) -> None:
    for _ in range(_CLAIMS):
        tag = _unfenced(store, state)
        latest = remote.Pointer(name=str(state.version), lineage=state.lineage, writer=uuid4().hex)
        with suppress(ConflictError):
            store.replace(LATEST, sealed(latest), tag)
            return
    raise OSError(f"{store.uri(LATEST)} is replaced by others all the time; end the other trainings there")


def _put(store: Store, key: str, data: bytes) -> FileEntry:
    store.put(key, data, verify=True)
    return FileEntry(bytes=len(data), sha256=sha256_of(data), uri=store.uri(key))
