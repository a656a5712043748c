"""What of a checkpoint is the same wherever it is written: how it is written, its manifest, which is best.

Must not import torch.
"""

import ctypes
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import zstandard
from safetensors import TensorSpec

from overwatch.objects.retrying import Patience
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.signing import Signer
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manifest import (
    FORMAT,
    Evaluation,
    FileEntry,
    Manifest,
    Scored,
    State,
    TensorEntry,
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
