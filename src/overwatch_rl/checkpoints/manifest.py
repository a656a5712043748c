"""The format of a checkpoint: names of its files, and what the two that are JSON hold.

Must not know how they are written or read, nor import torch.
"""

import hashlib
import re
from typing import Final

import msgspec

FORMAT: Final = 1
MANIFEST: Final = "MANIFEST.json"
STATE: Final = "state.json"
LATEST: Final = "latest"
BEST: Final = "best"
FOLDER: Final = "checkpoints"
"""Below the folder of a run."""
POLICY: Final = "policy.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
ALGORITHM: Final = "algorithm.safetensors"
"""What of the algorithm is in no file of its own."""
WORLD: Final = "world.safetensors"
TRAINER: Final = "trainer.safetensors"
PARTIAL: Final = ".partial"
"""End of the name of a folder that is being written; its name begins with a dot."""

_NAME: Final = re.compile(r"(\d{3,9})-(\d{8,18})")


def name_of(lineage: int, updates: int) -> str:
    """The name of a checkpoint's folder."""
    return f"{lineage:03d}-{updates:08d}"


def version_of(name: str) -> tuple[int, int] | None:
    """Lineage and updates; `None` of what is no checkpoint's name. The greatest is the newest."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor; the hash of its file covers it."""

    file: str
    dtype: str
    """As in the file, `F32`."""
    shape: tuple[int, ...]


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole checkpoint consists of."""

    format: int
    run_id: str
    lineage: int
    updates: int
    config_hash: str
    tensors: dict[str, TensorEntry]
    """By `file:name`, as the same name may be in two files."""
    files: dict[str, FileEntry]
    sha256: str = ""
    """Of the compact encoding of the rest."""

    def sealed(self) -> "Manifest":
        """The same with its hash."""
        rest = msgspec.json.encode(msgspec.structs.replace(self, sha256=""))
        return msgspec.structs.replace(self, sha256=hashlib.sha256(rest).hexdigest())


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What is not a tensor."""

    format: int = FORMAT
    run_id: str
    lineage: int
    """1, and one more a resume."""
    updates: int
    """Updates done."""
    steps: int
    """Steps of the vector env done."""
    score: float | None = None
    """Mean return of the newest update whose numbers had come; `best` is the greatest."""
    plan: dict[str, object]
    """Fields of `algorithms.base.Plan`."""
    config: dict[str, object]
    config_hash: str
    """Of what decides the numbers."""


def bytes_of(value: object) -> bytes:
    """JSON for a person."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
