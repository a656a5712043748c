"""What a backup holds, as JSON: its files with sizes and digests.

Rules: the name of a manifest holds the SHA-256 of its bytes, so that one that is torn or was altered shows.
Paths lead below the data folder. Pure; must not know where a backup lies.
"""

import re
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final

import msgspec

from overwatch.objects.digests import sha256_of

FORMAT: Final = 1
"""Of the manifest and of where files lie."""
_DIGITS: Final = 16
_NAME: Final = re.compile(r"(\d{8}T\d{6}\.\d{3}Z)-([0-9a-f]{16})")


class BackupError(ValueError):
    """A backup cannot be made, or is not whole; the message names what, and the fix."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    path: str
    """Below the data folder, parts joined by `/`."""
    bytes: int
    sha256: str
    modified_ns: int
    """When the file was last written to, Unix nanoseconds."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup."""

    format: int = FORMAT
    overwatch: str
    """The version that made it."""
    at_ns: int
    """The moment that it is of, Unix nanoseconds."""
    files: tuple[Kept, ...]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(kept.bytes for kept in self.files)


class _Format(msgspec.Struct, frozen=True):
    format: int


_format: Final = msgspec.json.Decoder(_Format).decode
_manifest: Final = msgspec.json.Decoder(Manifest).decode


def encoded(manifest: Manifest) -> tuple[str, bytes]:
    """A manifest's name and its bytes."""
    data = msgspec.json.encode(manifest)
    moment = datetime.fromtimestamp(manifest.at_ns // 10**9, UTC)
    thousandths = manifest.at_ns // 10**6 % 1000
    return f"{moment:%Y%m%dT%H%M%S}.{thousandths:03d}Z-{sha256_of(data)[:_DIGITS]}", data


def decoded(name: str, data: bytes) -> Manifest:
    """The manifest of that name. Raises `BackupError` for one that is not what was written."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise BackupError(f"{name!r} is no backup's name; `overwatch backup list` prints them")
    if sha256_of(data)[:_DIGITS] != found[2]:
        raise BackupError(f"the manifest of backup {name} is torn or was altered; use another backup")
    try:
        version = _format(data).format
        if version > FORMAT:
            raise BackupError(
                f"backup {name} has format {version}, and this Overwatch reads {FORMAT}; use a newer one"
            )
        manifest = _manifest(data)
    except msgspec.DecodeError as error:
        raise BackupError(f"the manifest of backup {name} cannot be read: {error}") from error
    for kept in manifest.files:
        parts = PurePosixPath(kept.path).parts
        if not parts or kept.path.startswith("/") or ".." in parts or not _is_digest(kept.sha256):
            raise BackupError(f"backup {name} names {kept.path!r}, which is no file of a data folder")
    return manifest


def is_name(name: str) -> bool:
    """Whether a file may be a manifest."""
    return _NAME.fullmatch(name) is not None


def _is_digest(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None
