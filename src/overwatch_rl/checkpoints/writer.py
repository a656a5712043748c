"""The process that writes checkpoints: `python -m overwatch_rl.checkpoints.writer PLACE RETENTION SAVING`.

It outlives a trainer that was killed until what was handed over is written. Must not import torch.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors import TensorSpec

from overwatch_rl.checkpoints.manifest import FileEntry, State
from overwatch_rl.checkpoints.store import FencedError, Retention, Saving, open_place, write_checkpoint
from overwatch_rl.handover.receiver import Receiver, SharedBlock, run


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one save."""

    updates: int
    path: str
    """Folder or URI of the checkpoint."""
    version: str = ""
    cursor: dict[str, Any] | None = None
    """That of its state: what may be acknowledged now. The trainer's side fills it in: answers are short."""
    size_bytes: int = 0
    duration_s: float = 0.0
    """Seconds that writing took."""
    files: dict[str, FileEntry] = msgspec.field(default_factory=dict)
    """Size and digest of each, for a record of artifacts."""
    sha256: str = ""
    """That the manifest names as its own."""
    error: str | None = None
    """Why there is no checkpoint; `None` when there is."""
    is_fenced: bool = False
    """Whether another training goes on from here: this one may write no more."""


def specs(block: SharedBlock) -> dict[str, dict[str, TensorSpec]]:
    """By file, then by name: the tensors of a parcel, of which each is called `file:name`."""
    files: dict[str, dict[str, TensorSpec]] = {}
    for key, piece in block.pieces.items():
        file, _, name = key.partition(":")
        files.setdefault(file, {})[name] = TensorSpec(
            dtype=piece.dtype, shape=list(piece.shape), data_ptr=block.address(piece), data_len=piece.size
        )
    return files


def serve(receiver: Receiver, arguments: Sequence[str]) -> None:
    """Write each."""
    retention = msgspec.json.decode(arguments[1], type=Retention)
    saving = msgspec.json.decode(arguments[2], type=Saving, dec_hook=lambda _, text: Path(text))
    store = open_place(arguments[0], saving.patience)
    for block in receiver.blocks():
        began = time.perf_counter()
        state = msgspec.json.decode(block.note, type=State)
        version, path = str(state.version), arguments[0]
        written = Written(updates=state.updates, path=path, version=version)
        try:
            saved = write_checkpoint(store, state, specs(block), retention, saving)
        except (OSError, ValueError, FencedError) as error:
            is_fenced = isinstance(error, FencedError)
            written = msgspec.structs.replace(written, error=str(error), is_fenced=is_fenced)
        else:
            written = msgspec.structs.replace(
                written,
                path=saved.where,
                size_bytes=saved.size,
                duration_s=time.perf_counter() - began,
                files=saved.manifest.files,
                sha256=saved.manifest.sha256,
            )
        receiver.answer(block, written)


if __name__ == "__main__":
    run(sys.argv[1:], serve)
