"""What checkpoints a place holds, and what evaluations found of them.

`place` is a folder or a URL, as for `reading`. Raises `ValueError` where it cannot be read.
"""

from pathlib import Path

import msgspec

from overwatch.objects.retrying import Patience
from overwatch.objects.store import Store, is_remote
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import BEST, EVALUATIONS, LATEST, Evaluation, Manifest, sealed
from overwatch_rl.checkpoints.reading import fetched, located, verified
from overwatch_rl.checkpoints.store import (
    evaluations,
    location,
    open_place,
    read_pointer,
    stored_manifest,
    versions_in,
)


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
    store = open_place(located(place)[0], patience)
    key = f"{EVALUATIONS}/{evaluation.version}.json"
    store.put(key, sealed(evaluation), verify=True)
    return store.uri(key)


def listed(place: Path | str, *, is_read: bool, patience: Patience | None = None) -> list[Listed]:
    """All that are there, oldest first; with `is_read` each file is read and compared with its manifest."""
    store = open_place(located(place)[0], patience)
    try:
        found = versions_in(store)
        evaluated = {one.version: one.mean_return for one in evaluations(store)}
        pointers = {name: read_pointer(store, name)[0] for name in (LATEST, BEST)}
        named = {name: pointer and pointer.name for name, pointer in pointers.items()}
        sizes: dict[str, int] = {}
        for entry in store.list():
            folder = entry.key.partition("/")[0]
            sizes[folder] = sizes.get(folder, 0) + entry.size
        made = []
        for version in sorted(found):
            manifest, fault = _read(store, version, is_read=is_read)
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


def _read(store: Store, version: Version, *, is_read: bool) -> tuple[Manifest | None, str | None]:
    manifest = None
    try:
        manifest = msgspec.json.decode(stored_manifest(store, version), type=Manifest)
        where = location(store, str(version))
        if is_read and is_remote(where):
            fetched(store, version)
        elif is_read:
            verified(Path(where))
    except ValueError as error:
        return manifest, str(error)
    return manifest, None
