"""What checkpoints a place holds, and what evaluations found of them.

`place` is a folder or a URL, as for `reading`. Raises `ValueError` where it cannot be read.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from overwatch.objects.retrying import Patience
from overwatch.objects.store import Store, is_remote, open_store
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import BEST, EVALUATIONS, LATEST, Evaluation, Manifest, sealed
from overwatch_rl.checkpoints.reading import fetched, place_and_version, place_of, verified
from overwatch_rl.checkpoints.remote import evaluations, read_pointer, stored_manifest, versions_in


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint."""

    version: str
    where: str
    size_bytes: int
    run_id: str | None = None
    updates: int | None = None
    score: float | None = None
    """Mean return of training."""
    evaluated: float | None = None
    """Mean return of its evaluation."""
    is_latest: bool = False
    is_best: bool = False
    fault: str | None = None
    """Why it cannot be taken; `None` as far as it was read."""


def post_evaluation(place: Path | str, evaluation: Evaluation, patience: Patience | None = None) -> str:
    """Record what an evaluation found of a version, so that the next save chooses `best` by it; its URI.

    Raises `OSError` where it cannot be written.
    """
    store = _store(place, patience)
    key = f"{EVALUATIONS}/{evaluation.version}.json"
    store.put(key, sealed(evaluation), verify=True)
    return store.uri(key)


def listed(place: Path | str, *, is_read: bool, patience: Patience | None = None) -> list[Listed]:
    """All that are there, oldest first; with `is_read` each file is read and compared with its manifest."""
    store = _store(place, patience)
    try:
        found = versions_in(store)
        evaluated = {one.version: one.mean_return for one in evaluations(store)}
        named = {pointer: _named(store, pointer) for pointer in (LATEST, BEST)}
        sizes: dict[str, int] = {}
        for entry in store.list():
            folder = entry.key.partition("/")[0]
            sizes[folder] = sizes.get(folder, 0) + entry.size
        made = []
        for version in sorted(found):
            manifest, fault = _read(place, store, version, is_read=is_read)
            made.append(
                Listed(
                    version=str(version),
                    where=store.uri(str(version)),
                    size_bytes=sizes[str(version)],
                    run_id=None if manifest is None else manifest.run_id,
                    updates=None if manifest is None else manifest.updates,
                    score=None if manifest is None else manifest.score,
                    evaluated=evaluated.get(version),
                    is_latest=named[LATEST] == str(version),
                    is_best=named[BEST] == str(version),
                    fault=fault,
                )
            )
    except OSError as error:
        raise ValueError(f"checkpoints in {store.uri()} cannot be read: {error}") from error
    return made


def _store(place: Path | str, patience: Patience | None) -> Store:
    if is_remote(place):
        return open_store(place_and_version(str(place))[0], patience)
    return open_store(place_of(Path(place)), patience)


def _read(
    place: Path | str, store: Store, version: Version, *, is_read: bool
) -> tuple[Manifest | None, str | None]:
    manifest = None
    try:
        manifest = msgspec.json.decode(stored_manifest(store, version), type=Manifest)
        if is_read and is_remote(place):
            fetched(store, version)
        elif is_read:
            verified(place_of(Path(place)) / str(version))
    except ValueError as error:
        return manifest, str(error)
    return manifest, None


def _named(store: Store, pointer: str) -> str | None:
    """What `latest` or `best` names: JSON in an object store, a line in a folder."""
    known, _ = read_pointer(store, pointer)
    if known is not None:
        return known.name
    held = store.get(pointer)
    with suppress(UnicodeDecodeError):
        return None if held is None else held.data.decode().strip()
    return None
