"""Finds and loads a checkpoint; one that is half written or damaged is never taken.

Raises `ValueError` naming the file and the fix. Torch is imported where tensors are asked for. Must not know
how checkpoints are written.
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from safetensors import SafetensorError

from overwatch_rl.checkpoints.manifest import FOLDER, FORMAT, MANIFEST, STATE, Manifest, State, version_of

if TYPE_CHECKING:
    from torch import Tensor

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that was verified."""

    path: Path
    state: State
    files: tuple[str, ...]

    def tensors(self, file: str) -> "dict[str, Tensor]":
        """Of one file, on the CPU; empty where the checkpoint has no such file."""
        if file not in self.files:
            return {}
        from safetensors.torch import load_file

        try:
            return load_file(self.path / file)
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"{self.path / file} cannot be read: {error}; name another checkpoint"
            ) from error


def place_of(folder: Path) -> Path:
    """Where checkpoints lie: `folder` is that of a run, of its checkpoints, or one checkpoint."""
    if version_of(folder.resolve().name) is not None:
        return folder.resolve().parent
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def find_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`, or the newest whole one of the run there.

    `latest` need not be read: it is a hint, the newest that verifies may be another.
    """
    if version_of(folder.resolve().name) is not None:
        return verified(folder.resolve())
    place = place_of(folder)
    found = sorted(versions(place), reverse=True)
    faults = []
    for _, name in found:
        try:
            return verified(place / name)
        except ValueError as error:
            _log.warning("%s", error)
            faults.append(str(error))
    if faults:
        raise ValueError(f"{place} has no checkpoint that is whole: {faults[0]}")
    raise ValueError(f"{folder} holds no checkpoint; name the --out folder of a training run")


def versions(place: Path) -> list[tuple[tuple[int, int], str]]:
    """Version and name of each folder there that is called like a checkpoint."""
    if not place.is_dir():
        return []
    return [(version, one.name) for one in place.iterdir() if (version := version_of(one.name)) is not None]


def verified(path: Path) -> Checkpoint:
    """The checkpoint at `path`, each of its files compared with the manifest."""
    fix = "it is not whole; name another checkpoint of the run, or its folder for the newest whole one"
    manifest = _decoded(path / MANIFEST, Manifest, fix)
    if manifest.format != FORMAT:
        raise ValueError(f"{path / MANIFEST} has format {manifest.format}, not {FORMAT}; use its own version")
    if manifest.sealed() != manifest:
        raise ValueError(f"{path / MANIFEST} has another hash than it names; {fix}")
    for name, entry in manifest.files.items():
        try:
            with (path / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{path / name} cannot be read: {error.strerror}; {fix}") from error
        if digest != entry.sha256:
            raise ValueError(f"{path / name} has another hash than its manifest names; {fix}")
    state = _decoded(path / STATE, State, fix)
    if (state.lineage, state.updates) != (manifest.lineage, manifest.updates):
        raise ValueError(f"{path / STATE} is of another checkpoint than its manifest; {fix}")
    return Checkpoint(path=path, state=state, files=tuple(manifest.files))


def _decoded(path: Path, kind: type[T], fix: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; {fix}") from error
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}; {fix}") from error
