"""What lies in an object store beside the tensors, and how it is read: versions, manifests, pointers.

Rules: each small file names its own hash, and one that comes damaged is read again, since that may have
happened on the way. Must not know how checkpoints are written, nor import torch.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from overwatch.objects.backends import Held, Tag
from overwatch.objects.store import Store
from overwatch_rl.artifacts.versions import Version, parse
from overwatch_rl.checkpoints.manifest import (
    EVALUATIONS,
    MANIFEST,
    Evaluation,
    Manifest,
    Scored,
    Sealed,
    seal_of,
    unsealed,
)

_READS: Final = 4
"""Of a small file that comes damaged."""


class Pointer(Sealed, frozen=True, kw_only=True):
    """What `latest` and `best` hold in an object store."""

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
