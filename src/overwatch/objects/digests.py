"""SHA-256 of bytes, as lower-case hexadecimal text. Must not know what the bytes mean."""

import hashlib
from mmap import mmap
from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview | mmap


def sha256_of(data: Bytes) -> str:
    """Of bytes in memory, 64 digits."""
    return hashlib.sha256(data).hexdigest()
