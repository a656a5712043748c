"""Backups in a folder or an object store: made, listed, verified, restored, removed.

Owns what lies there: `files/<two digits>/<SHA-256>`, each content once, and `backups/<name>.json`, written
last. Rules: what is there already is not written again, so a backup after another costs what changed. A
backup is whole or not there. A restore writes into an empty folder only, after every file was verified, and
the journal goes last. One process writes to a place at a time. Must not know what the files hold.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import msgspec

from overwatch import __version__
from overwatch.backup.capture import JOURNAL, Open, captured
from overwatch.backup.manifest import BackupError, Kept, Manifest, decoded, encoded, is_name
from overwatch.objects.digests import sha256_of
from overwatch.objects.store import LostError, Store
from overwatch.platform import sync, sync_folder

_FILES: Final = "files"
_BACKUPS: Final = "backups"
_SUFFIX: Final = ".json"
_SETTLED_NS: Final = 2_000_000_000
"""A file that was written to so shortly before a backup may have changed after it within the same tick."""
_STAGING: Final = ".restoring-"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made."""

    name: str
    files: int
    bytes: int
    written: int
    """Bytes that were not there before."""


def save(data: Path, store: Store, now_ns: int) -> Saved:
    """Copy a data folder as it is now. Raises `BackupError`, `OSError`."""
    there = {entry.key.rpartition("/")[2]: entry.size for entry in store.list(_FILES)}
    known = _known(store)
    kept, written = [], 0
    with captured(data) as moment:
        for one in moment:
            before = known.get(one.path)
            if before is not None and _is_unchanged(one, before) and there.get(before.sha256) == one.size:
                kept.append(before)
                continue
            content = one.read()
            if len(content) != one.size and one.path.partition("/")[0] != JOURNAL:
                raise BackupError(f"{data / one.path} shrank while it was copied; try again")
            digest = sha256_of(content)
            if there.get(digest) != len(content):
                store.put(_key(digest), content, verify=True)
                there[digest] = len(content)
                written += len(content)
            kept.append(Kept(path=one.path, bytes=len(content), sha256=digest, modified_ns=one.modified_ns))
    manifest = Manifest(overwatch=__version__, at_ns=now_ns, files=tuple(kept))
    name, encoding = encoded(manifest)
    store.put(f"{_BACKUPS}/{name}{_SUFFIX}", encoding, verify=True)
    return Saved(name=name, files=len(kept), bytes=manifest.bytes, written=written)


def names(store: Store) -> list[str]:
    """Of all backups, the oldest first. Raises `OSError`."""
    found = (entry.key.rpartition("/")[2].removesuffix(_SUFFIX) for entry in store.list(_BACKUPS))
    return sorted(name for name in found if is_name(name))


def read(store: Store, name: str | None = None) -> tuple[str, Manifest]:
    """A backup's manifest, the newest one's without a name. Raises `BackupError`, `OSError`."""
    if name is None:
        every = names(store)
        if not every:
            raise BackupError(f"{store.uri()} holds no backup; `overwatch backup make` writes one")
        name = every[-1]
    held = store.get(f"{_BACKUPS}/{name}{_SUFFIX}") if is_name(name) else None
    if held is None:
        raise BackupError(f"{store.uri()} holds no backup {name!r}; `overwatch backup list` prints them")
    return name, decoded(name, held.data)


def verify(store: Store, manifest: Manifest) -> list[str]:
    """Read every file; what is missing or another, in a line each. Raises `OSError`."""
    wrong = []
    for digest, path in {kept.sha256: kept.path for kept in manifest.files}.items():
        try:
            held = store.get(_key(digest), digest)
        except LostError:
            wrong.append(f"{path} is damaged: {store.uri(_key(digest))}")
            continue
        if held is None:
            wrong.append(f"{path} is missing: {store.uri(_key(digest))}")
    return wrong


def restore(store: Store, manifest: Manifest, folder: Path) -> None:
    """Write a backup into a folder that is empty or not there, once all of it is verified.

    Raises `BackupError`, with nothing changed, for a folder that holds something and a backup that is not
    whole; `OSError`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(f"{folder} is not empty; restore into a new folder, then start the collector there")
    is_new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    staging = Path(mkdtemp(prefix=_STAGING, dir=folder))
    try:
        try:
            store.fetch({_key(kept.sha256): kept.sha256 for kept in manifest.files}, staging)
        except LostError as error:
            raise BackupError(f"the backup is not whole: {error}; use another backup") from error
        _build(staging, manifest)
        tops = sorted(
            {kept.path.partition("/")[0] for kept in manifest.files}, key=lambda top: top == JOURNAL
        )
        for top in tops:
            (staging / "tree" / top).rename(folder / top)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
    shutil.rmtree(staging, ignore_errors=True)


def prune(store: Store, keep: int) -> list[str]:
    """Remove all but the newest backups, then files that none of those needs; the removed ones' names.

    Raises `BackupError` where a manifest that stays cannot be read, before anything is removed; `OSError`.
    """
    every = names(store)
    gone, stay = every[:-keep], every[-keep:]
    needed = {kept.sha256 for name in stay for kept in read(store, name)[1].files}
    store.delete(*(f"{_BACKUPS}/{name}{_SUFFIX}" for name in gone))
    held = store.list(_FILES)
    store.delete(*(entry.key for entry in held if entry.key.rpartition("/")[2] not in needed))
    return gone


def _key(digest: str) -> str:
    return f"{_FILES}/{digest[:2]}/{digest}"


def _known(store: Store) -> dict[str, Kept]:
    """Files of the newest backup that had come to rest by then; none where it cannot be read."""
    with suppress(BackupError):
        _, manifest = read(store)
        settled = manifest.at_ns - _SETTLED_NS
        return {kept.path: kept for kept in manifest.files if kept.modified_ns < settled}
    return {}


def _is_unchanged(one: Open, before: Kept) -> bool:
    return one.data is None and (one.size, one.modified_ns) == (before.bytes, before.modified_ns)


def _build(staging: Path, manifest: Manifest) -> None:
    """The tree of the data folder below `staging`, each file with an inode of its own, on the disk."""
    for kept in manifest.files:
        path = staging / "tree" / kept.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (staging / kept.sha256).open("rb") as source, path.open("xb") as target:
            path.chmod(0o600)
            shutil.copyfileobj(source, target)
            target.flush()
            sync(target.fileno())
    for parent in sorted({(staging / "tree" / kept.path).parent for kept in manifest.files}):
        sync_folder(parent)
