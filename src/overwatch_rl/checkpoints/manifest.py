"""The format of a checkpoint: names of its files, and what the ones that are JSON hold.

Must not know how they are written or read, nor import torch.
"""

import hashlib
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

import msgspec

from overwatch_rl.artifacts.signing import Signed
from overwatch_rl.artifacts.versions import Version, parse

FORMAT: Final = 2
MANIFEST: Final = "MANIFEST.json"
STATE: Final = "state.json"
MOST_BYTES: Final = 64 << 20
"""Of a file that is JSON."""
LATEST: Final = "latest"
BEST: Final = "best"
FOLDER: Final = "checkpoints"
"""Below the folder of a run."""
POLICY: Final = "policy.safetensors"
VALUE: Final = "value.safetensors"
"""Only of an algorithm whose value function shares nothing with its policy."""
OPTIMIZER: Final = "optimizer.safetensors"
ALGORITHM: Final = "algorithm.safetensors"
"""What of the algorithm is in no file of its own."""
WORLD: Final = "world.safetensors"
TRAINER: Final = "trainer.safetensors"
PACKED: Final = ".zst"
"""What a file's name ends in when it is compressed."""
EVALUATIONS: Final = "evaluations"
"""Below the place of checkpoints: a JSON file for each version that was evaluated."""

Scored = Literal["evaluation", "training"]


def version_of(name: str) -> Version | None:
    """`None` of what is no checkpoint's name. The greatest is the newest."""
    return parse(name)


class TensorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor; the hash of its file covers it."""

    file: str
    """Without what is added to the name when it is compressed."""
    dtype: str
    """As in the file, `F32`."""
    shape: tuple[int, ...]
    xxh3: str = ""
    """XXH3 of its bytes with 128 bits, in hexadecimal; names the one that differs."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file, as it is stored."""

    bytes: int
    sha256: str
    uri: str = ""
    """Where it was written; a checkpoint that was copied is read where it lies."""


class Manifest(Signed, frozen=True, kw_only=True):
    """What a whole checkpoint consists of."""

    format: int
    run_id: str
    lineage: int
    updates: int
    number: int | None = None
    """Of the version; `None` when it is the same as the updates."""
    score: float | None = None
    """Mean return of training, as in the state."""
    best_by: Scored = "training"
    """By which return the best checkpoint was chosen when this one was written."""
    config: dict[str, object] = msgspec.field(default_factory=dict)
    config_hash: str
    tensors: dict[str, TensorEntry]
    """By `file:name`, as the same name may be in two files."""
    files: dict[str, FileEntry]
    sha256: str = ""
    """Of the compact encoding of the rest."""

    @property
    def version(self) -> Version:
        """Which one it is."""
        return Version(self.lineage, self.updates if self.number is None else self.number)

    def sealed(self) -> "Manifest":
        """The same with its hash."""
        return msgspec.structs.replace(self, sha256=seal_of(msgspec.json.encode(self)))


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A small file that shows by itself whether it came whole."""

    sha256: str = ""
    """Of the compact encoding of the rest."""


S = TypeVar("S", bound=Sealed)


def sealed(value: S) -> bytes:
    """As it is stored."""
    seal = seal_of(msgspec.json.encode(value))
    return msgspec.json.encode(msgspec.structs.replace(value, sha256=seal)) + b"\n"


def unsealed(stored: bytes, kind: type[S]) -> S | None:
    """What was stored; `None` when it is damaged."""
    with suppress(ValueError):  # msgspec's own, and that of bytes that are no text.
        value = msgspec.json.decode(stored, type=kind)
        return value if value.sha256 == seal_of(stored) else None
    return None


def seal_of(stored: bytes) -> str:
    """The hash that a stored object of any format has to name as its `sha256`.

    Raises `ValueError` of what is none.
    """
    rest = msgspec.json.decode(stored, type=dict[str, object])
    return hashlib.sha256(msgspec.json.encode(rest | {"sha256": ""})).hexdigest()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What is not a tensor."""

    format: int = FORMAT
    run_id: str
    lineage: int
    """1, and one more a resume."""
    updates: int
    """Updates done."""
    number: int | None = None
    """Of the version of the weights, where it is not the same as the updates: a resumed learner skips those
    that were published after the checkpoint."""
    steps: int
    """Steps of the vector env done."""
    score: float | None = None
    """Mean return of the newest update whose numbers had come; `best` is the greatest."""
    cursor: dict[str, Any] | None = None
    """How far the experience of others is in it, as the learner keeps that; `None` of a training that makes
    its own."""
    plan: dict[str, object]
    """Fields of `algorithms.common.Plan`."""
    config: dict[str, object]
    config_hash: str
    """Of what decides the numbers."""

    @property
    def version(self) -> Version:
        """Which checkpoint it is of."""
        return Version(self.lineage, self.updates if self.number is None else self.number)


class Evaluation(Sealed, frozen=True, kw_only=True):
    """What an evaluation found of one version."""

    lineage: int
    number: int
    mean_return: float
    episodes: int

    @property
    def version(self) -> Version:
        """Of the weights that were evaluated."""
        return Version(self.lineage, self.number)


def bytes_of(value: object) -> bytes:
    """JSON for a person."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
