"""The format of published weights: what a manifest states, and what has to be true of it and of its artifact.

Rules: a manifest is believed only when its signature is of an accepted key; an artifact only when its bytes
have the SHA-256 that the manifest states. Nothing is unpickled. Pure; must not know channels or torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from overwatch.objects.digests import sha256_of
from overwatch_rl.artifacts.signing import SignatureError, Signed, Verifier
from overwatch_rl.artifacts.versions import Version

FORMAT: Final = 1
FOLDER: Final = "weights"
"""Below the address of a run's artifacts."""
CURRENT: Final = f"{FOLDER}/current.json"
"""The version key in a store: the newest manifest."""


class RejectedError(ValueError):
    """A manifest or an artifact that is not used; why."""


class Shape(msgspec.Struct, frozen=True):
    """What a tensor is, whatever its numbers."""

    dtype: str
    """As in the file, `F32`."""
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """`F32 [3, 4]`."""
        return f"{self.dtype} {list(self.shape)}"


class TensorEntry(Shape, frozen=True):
    """One tensor of an artifact."""

    xxh3: str


class WeightsManifest(Signed, frozen=True, kw_only=True):
    """One version of a run's weights."""

    format: int = FORMAT
    run_id: str
    version: Version
    bytes: int
    sha256: str
    """Both of the artifact."""
    tensors: dict[str, TensorEntry]
    config_hash: str
    made_at_ns: int
    """When the learner handed the weights over, by its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Which weights an actor takes."""

    run_id: str
    verifier: Verifier
    shapes: Mapping[str, Shape] | None = None
    """Of every tensor that acting reads; `None` where any are taken."""


def artifact_of(version: Version) -> str:
    """The key of a version's artifact."""
    return f"{FOLDER}/{version}.safetensors"


_decoder: Final = msgspec.json.Decoder(WeightsManifest)


def decoded(text: bytes) -> WeightsManifest:
    """A manifest as it is stated, with any signature. Raises `RejectedError`."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedError(f"its manifest cannot be read: {error}") from error


def encoded(manifest: WeightsManifest) -> bytes:
    """As it is published."""
    return msgspec.json.encode(manifest)


def check(manifest: WeightsManifest, accepted: Accepted) -> None:
    """Raise `RejectedError` unless an actor may take what the manifest describes."""
    if manifest.format != FORMAT:
        raise RejectedError(f"its manifest has format {manifest.format}; this version reads {FORMAT}")
    try:
        accepted.verifier.check(manifest)
    except SignatureError as error:
        raise RejectedError(f"its manifest is not accepted: {error}") from error
    if manifest.run_id != accepted.run_id:
        raise RejectedError(f"it is of run {manifest.run_id[:80]!r}; wanted is {accepted.run_id!r}")
    if accepted.shapes is not None:
        compare(accepted.shapes, manifest.tensors)


def check_artifact(manifest: WeightsManifest, artifact: bytes) -> None:
    """Raise `RejectedError` unless these are the bytes that a manifest describes."""
    if len(artifact) != manifest.bytes:
        raise RejectedError(f"its artifact has {len(artifact)} bytes, the manifest states {manifest.bytes}")
    if sha256_of(artifact) != manifest.sha256:
        raise RejectedError("its artifact has another SHA-256 than the manifest states")


def compare(wanted: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Raise `RejectedError` unless both have the same names, of tensors of the same kind."""
    for name in sorted(wanted.keys() | found.keys()):
        one, other = wanted.get(name), found.get(name)
        if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
            raise RejectedError(
                f"tensor {name!r} is {other or 'not there'}, wanted is {one or 'none of that name'}"
            )
