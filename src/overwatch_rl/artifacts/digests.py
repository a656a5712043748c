"""Digests of bytes: SHA-256 of a file, which a signature covers; XXH3 of a tensor, to name what is damaged.

Rules: as lower-case hexadecimal text. XXH3 finds accidents and costs a tenth; only SHA-256 stands against
somebody who changes bytes on purpose. Must not know what the bytes mean.
"""

import hashlib
from mmap import mmap
from typing import TypeAlias

import xxhash

Bytes: TypeAlias = bytes | bytearray | memoryview | mmap


def sha256_of(data: Bytes) -> str:
    """Of bytes in memory, 64 digits."""
    return hashlib.sha256(data).hexdigest()


def xxh3_of(*parts: Bytes) -> str:
    """XXH3 with 128 bits of parts in order, 32 digits."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
