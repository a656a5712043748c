"""Finds and loads a checkpoint; one that is half written or damaged is never taken.

`place` is a folder or a URL everywhere: that of a run, of its checkpoints, or one checkpoint. From an object
store files come several at a time into a folder that is removed with the `Checkpoint`.
Raises `ValueError` naming the file and the fix. Torch is imported where tensors are asked for. Must not know
how checkpoints are written.
"""

import hashlib
import logging
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
import zstandard
from safetensors import SafetensorError

from overwatch.objects.retrying import Patience
from overwatch.objects.store import LostError, Store, is_remote
from overwatch.regular import read_regular
from overwatch_rl.artifacts.signing import SignatureError, Verifier
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import (
    FOLDER,
    FORMAT,
    LATEST,
    MANIFEST,
    MOST_BYTES,
    PACKED,
    STATE,
    Manifest,
    State,
    seal_of,
    version_of,
)
from overwatch_rl.checkpoints.store import location, open_place, read_pointer, stored_manifest, versions_in

if TYPE_CHECKING:
    from torch import Tensor

_log: Final = logging.getLogger(__name__)
_FIX: Final = "it is not whole; name another checkpoint of the run, or its folder for the newest whole one"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """One that was verified."""

    path: Path
    """Where its files lie on this machine."""
    where: str
    """Its folder, or its URI in an object store."""
    state: State
    manifest: Manifest

    @property
    def files(self) -> tuple[str, ...]:
        """Names as they are stored."""
        return tuple(self.manifest.files)

    def tensors(self, file: str) -> "dict[str, Tensor]":
        """Of one file, on the CPU; empty where the checkpoint has no such file."""
        from safetensors.torch import load, load_file

        try:
            if file in self.files:
                return load_file(self.path / file)
            if file + PACKED in self.files:
                return load(
                    zstandard.ZstdDecompressor().decompress((self.path / (file + PACKED)).read_bytes())
                )
        except (OSError, SafetensorError, zstandard.ZstdError) as error:
            raise ValueError(
                f"{self.path / file} cannot be read: {error}; name another checkpoint"
            ) from error
        return {}


def place_of(folder: Path) -> Path:
    """Where checkpoints lie: `folder` is that of a run, of its checkpoints, or one checkpoint."""
    if version_of(folder.resolve().name) is not None:
        return folder.resolve().parent
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def find_checkpoint(
    place: Path | str, *, verifier: Verifier | None = None, patience: Patience | None = None
) -> Checkpoint:
    """The checkpoint at a place, or the newest whole one of the run there; signed, where there is a verifier.

    `latest` need not be right: it is a hint, the newest that verifies may be another.
    """
    where = location(open_place(located(place)[0], patience))
    faults = []
    try:
        for attempt in candidates(place, verifier=verifier, patience=patience):
            try:
                return attempt()
            except ValueError as error:
                _log.warning("%s", error)
                faults.append(str(error))
    except OSError as error:
        raise ValueError(f"checkpoints in {where} cannot be read: {error}") from error
    if located(place)[1] is not None:
        raise ValueError(faults[0])
    if faults:
        raise ValueError(f"{where} has no checkpoint that is whole: {faults[0]}")
    raise ValueError(f"{where} holds no checkpoint; name the --out folder of a training run")


def candidates(
    place: Path | str, *, verifier: Verifier | None = None, patience: Patience | None = None
) -> list[Callable[[], Checkpoint]]:
    """What loads each checkpoint of a place, the newest first; of a place that is one, that one.

    Raises `OSError` where they cannot be listed; a loader besides `ValueError` of one that is not whole.
    """
    at, version = located(place)
    store = open_place(at, patience)
    wanted = [version] if version else versions_of(store)
    if is_remote(at):
        return [partial(fetched, store, one, verifier) for one in wanted]
    return [partial(verified, Path(at) / str(one), verifier) for one in wanted]


def verified(path: Path, verifier: Verifier | None = None) -> Checkpoint:
    """The checkpoint in a folder, each of its files compared with the manifest."""
    manifest = _decoded(path / MANIFEST, Manifest)
    if manifest.format != FORMAT:
        raise ValueError(f"{path / MANIFEST} has format {manifest.format}, not {FORMAT}; use its own version")
    if seal_of(read_regular(path / MANIFEST, MOST_BYTES)) != manifest.sha256:
        raise ValueError(f"{path / MANIFEST} has another hash than it names; {_FIX}")
    _check_signature(str(path / MANIFEST), manifest, verifier)
    for name, entry in manifest.files.items():
        try:
            fd = os.open(path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                found = os.fstat(fd)
                if not stat.S_ISREG(found.st_mode) or found.st_size != entry.bytes:
                    raise ValueError(f"{path / name} is no regular file of {entry.bytes} bytes; {_FIX}")
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{path / name} cannot be read: {error.strerror}; {_FIX}") from error
        if digest != entry.sha256:
            raise ValueError(f"{path / name} has another hash than its manifest names; {_FIX}")
    state = _decoded(path / STATE, State)
    if state.version != manifest.version:
        raise ValueError(f"{path / STATE} is of another checkpoint than its manifest; {_FIX}")
    return Checkpoint(path=path, where=str(path), state=state, manifest=manifest)


def located(place: Path | str) -> tuple[Path | str, Version | None]:
    """Where all checkpoints of a place lie, and which one where it ends in its name."""
    if not is_remote(place):
        return place_of(Path(place)), version_of(Path(place).resolve().name)
    return place_and_version(str(place))


def place_and_version(url: str) -> tuple[str, Version | None]:
    """The URL of all checkpoints, and which one where the URL ends in its name."""
    parts = urlsplit(url)
    above, _, last = parts.path.rstrip("/").rpartition("/")
    version = version_of(last)
    return (url, None) if version is None else (urlunsplit(parts._replace(path=above)), version)


def versions_of(store: Store) -> list[Version]:
    """Of those that were written to their end, newest first. Raises `OSError`."""
    found = {version for version, names in versions_in(store).items() if MANIFEST in names}
    latest, _ = read_pointer(store, LATEST)
    named = None if latest is None or latest.name is None else version_of(latest.name)
    return sorted(found | ({named} if named else set()), reverse=True)


def fetched(store: Store, version: Version, verifier: Verifier | None = None) -> Checkpoint:
    """One from an object store, verified. Raises `ValueError`, `OSError` where the store is gone."""
    stored = stored_manifest(store, version)
    manifest = msgspec.json.decode(stored, type=Manifest)
    if any("/" in name or name in ("", ".", "..") for name in manifest.files):
        raise ValueError(
            f"{store.uri(f'{version}/{MANIFEST}')} names a file outside of the checkpoint; {_FIX}"
        )
    into = Path(tempfile.mkdtemp(prefix="overwatch-checkpoint-"))
    try:
        wanted = {f"{version}/{name}": entry.sha256 for name, entry in manifest.files.items()}
        store.fetch(wanted, into)
        (into / MANIFEST).write_bytes(stored)
        local = verified(into, verifier)
        made = Checkpoint(
            path=into, where=store.uri(str(version)), state=local.state, manifest=local.manifest
        )
    except LostError as error:
        shutil.rmtree(into, ignore_errors=True)
        raise ValueError(f"{error}; {_FIX}") from error
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, into, ignore_errors=True)
    return made


def _check_signature(where: str, manifest: Manifest, verifier: Verifier | None) -> None:
    if verifier is None:
        return
    try:
        verifier.check(msgspec.structs.replace(manifest, sha256=""))
    except SignatureError as error:
        raise ValueError(f"{where}: {error}; name another checkpoint") from error


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(read_regular(path, MOST_BYTES), type=kind)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; {_FIX}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}; {_FIX}") from error
