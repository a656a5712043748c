"""How an artifact is brought to actors: whole, or as what changed since a version before; one row each.

A delta is the exclusive or of the bytes of two artifacts, each byte of a number in a stretch of its own, by
zstd. Who has the version before makes the version from it, or from several deltas in a row.
Rules: a delta is not signed and nobody is bound to have one, so what was made from it is nothing until it has
the SHA-256 of the signed manifest; nothing larger than the manifest states is unpacked. Pure; must not know
channels or torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.manifest import WHOLE, RejectedError, WeightsManifest

DELTA: Final = "delta"
CHAIN: Final = 4
"""Deltas in a row, at most: more are larger than a whole artifact."""
_LEVEL: Final = 1
_LENGTH: Final = 4
"""Bytes of the number before the head."""
_MOST_HEAD: Final = 1_024
Bytes: TypeAlias = NDArray[np.uint8]


class Base(msgspec.Struct, frozen=True):
    """A version that is there whole."""

    version: Version
    artifact: bytes


class Payload(msgspec.Struct, frozen=True):
    """What is published of a version beside its manifest."""

    artifact: bytes
    delta: bytes = b""
    """What makes it from the version before; empty where there is none."""


NOTHING: Final = Payload(b"")


class _Head(msgspec.Struct, frozen=True):
    base: Version
    width: int
    """Bytes of most numbers."""


_decoder: Final = msgspec.json.Decoder(_Head)


def encoded_delta(base: Base, artifact: bytes, width: int) -> bytes:
    """What makes `artifact` from `base`; empty where they have not as many bytes, or it would save none."""
    if len(base.artifact) != len(artifact):
        return b""
    changed = _array(base.artifact) ^ _array(artifact)
    whole = len(changed) // width * width
    sorted_ = np.concatenate([changed[:whole].reshape(-1, width).T.reshape(-1), changed[whole:]])
    head = msgspec.json.encode(_Head(base.version, width))
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(sorted_.tobytes())
    made = len(head).to_bytes(_LENGTH, "little") + head + packed
    return made if len(made) < len(artifact) else b""


def base_of(delta: bytes) -> Version:
    """The version before. Raises `RejectedError` of what is no delta."""
    return _head(delta)[0].base


def artifact_from(base: Base, version: Version, size: int, delta_of: Callable[[Version], bytes]) -> bytes:
    """The artifact of a version, `size` bytes, from deltas; not verified.

    Raises `RejectedError` of what is no delta, and `FileNotFoundError` where none leads to `base`.
    """
    made, at, read = _array(base.artifact), version, 0
    if len(made) != size:
        raise FileNotFoundError(f"{base.version} has {len(made)} bytes, {version} has {size}")
    for _ in range(CHAIN):
        data = delta_of(at)
        read += len(data)
        before, changed = _decoded(data, size)
        made = made ^ changed
        if before == base.version:
            return made.tobytes()
        if not base.version < before < at or read + len(data) >= size:
            break
        at = before
    raise FileNotFoundError(f"no {CHAIN} deltas, smaller than it, lead from {base.version} to {version}")


def _decoded(data: bytes, size: int) -> tuple[Version, Bytes]:
    """The version before, and which bits of its bytes changed."""
    head, packed = _head(data)
    try:
        if zstandard.frame_content_size(packed) != size or head.width not in (1, 2, 4, 8):
            raise RejectedError("a delta is of an artifact of another size")
        sorted_ = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError as error:
        raise RejectedError(f"a delta cannot be read: {error}") from error
    found, whole = _array(sorted_), size // head.width * head.width
    changed = np.concatenate([found[:whole].reshape(head.width, -1).T.reshape(-1), found[whole:]])
    return head.base, changed


def _head(data: bytes) -> tuple[_Head, bytes]:
    """And what comes after it."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    try:
        return _decoder.decode(data[_LENGTH : min(end, _MOST_HEAD)]), data[end:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedError(f"a delta cannot be read: {error}") from error


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One row."""

    encode: Callable[[Base, bytes, int], bytes] | None
    """Of an artifact, what is published beside it; `None` of the artifact itself."""
    decode: Callable[[Base, Version, int, Callable[[Version], bytes]], bytes] | None


ENCODINGS: Final[Mapping[str, Encoding]] = {
    WHOLE: Encoding(encode=None, decode=None),
    DELTA: Encoding(encode=encoded_delta, decode=artifact_from),
}


def width_of(manifest: WeightsManifest) -> int:
    """Bytes of most of its numbers."""
    return 2 if any(entry.dtype in ("BF16", "F16") for entry in manifest.tensors.values()) else 4
