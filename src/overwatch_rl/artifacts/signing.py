"""Ed25519 signatures of manifests.

Owns the key file, the text of a public key, and which bytes a signature covers: the name of the manifest's
type, then its JSON without blanks, all names in order, `signature` empty. So a signed manifest of one type is
none of another.
Rules: a private key is made once, in a file that only its user can read; the public key is text, which a
run's record names. Must not know what a manifest describes.
"""

import base64
import binascii
import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from overwatch.platform import sync, sync_folder
from overwatch.regular import read_regular

KEY_FILE: Final = "signing.key"
"""Its usual name in the folder of a run."""
_KIND: Final = "ed25519"
_MOST_BYTES: Final = 1 << 16


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest that can be signed has."""

    key_id: str = ""
    """Of the key that signed."""
    signature: str = ""
    """Base64 of 64 bytes; empty until it is signed."""


S = TypeVar("S", bound=Signed)


class SignatureError(ValueError):
    """A manifest that no accepted key signed as it is."""


def canonical(manifest: Signed) -> bytes:
    """The bytes that a signature of the manifest covers."""
    rest = msgspec.structs.replace(manifest, signature="")
    return type(manifest).__name__.encode() + b"\n" + msgspec.json.encode(rest, order="sorted")


class Signer:
    """Signs with a private key."""

    def __init__(self, path: Path) -> None:
        """Read the key file. Raises `ValueError` where it is no key, or others can read it."""
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            key = serialization.load_pem_private_key(read_regular(path, _MOST_BYTES), None)
        except OSError as error:
            raise ValueError(
                f"{path} cannot be read: {error.strerror}; name the key file of the run"
            ) from error
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is no private key; name a file that `make_key` made") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{path} is no Ed25519 key; name a file that `make_key` made")  # noqa: TRY004 a file
        if mode & 0o077:
            raise ValueError(
                f"{path} can be read by others (mode {mode:o}); use `chmod 600`, or make another key"
            )
        self._key = key
        self.public: str = _text_of(key.public_key())
        """The public key as text, for the record of the run."""
        self.key_id: str = key_id_of(self.public)
        """Short name of the key."""

    def sign(self, manifest: S) -> S:
        """The same manifest with the name of the key and the signature."""
        named = msgspec.structs.replace(manifest, key_id=self.key_id)
        signature = base64.b64encode(self._key.sign(canonical(named))).decode()
        return msgspec.structs.replace(named, signature=signature)


class Verifier:
    """Accepts what one of some keys signed."""

    def __init__(self, *publics: str) -> None:
        """Public keys as text, one or more. Raises `ValueError` where one is none."""
        if not publics:
            raise ValueError("no public key is named; give that of the run's record")
        self.publics = publics
        self._keys = {key_id_of(public): _key_of(public) for public in publics}

    def check(self, manifest: Signed) -> None:
        """Raise `SignatureError` unless an accepted key signed exactly this manifest."""
        key = self._keys.get(manifest.key_id)
        if key is None:
            known = ", ".join(sorted(self._keys))
            raise SignatureError(f"it is signed with key {manifest.key_id[:40]!r}; accepted is {known}")
        try:
            key.verify(base64.b64decode(manifest.signature, validate=True), canonical(manifest))
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise SignatureError(
                f"its signature is not one of key {manifest.key_id} over what it holds"
            ) from error


def make_key(path: Path) -> Signer:
    """The key in `path`, made there where there is none yet; of two makers at once, one makes it.

    Raises `ValueError` as `Signer` does, `OSError` when it cannot be written.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        fd, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # for this user alone
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(text)
                file.flush()
                sync(file.fileno())
            with suppress(FileExistsError):
                os.link(partial, path)
        finally:
            Path(partial).unlink()
        sync_folder(path.parent)
    return Signer(path)


def key_id_of(public: str) -> str:
    """Short name of a public key: 16 digits of its SHA-256."""
    return hashlib.sha256(public.encode()).hexdigest()[:16]


def _text_of(key: Ed25519PublicKey) -> str:
    return f"{_KIND}:{base64.b64encode(key.public_bytes_raw()).decode()}"


def _key_of(public: str) -> Ed25519PublicKey:
    prefix, _, text = public.partition(":")
    text = text if prefix == _KIND else ""
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise ValueError(
            f"{public[:60]!r} is no public key; it is '{_KIND}:' and 44 letters, as the run's record has it"
        ) from error
