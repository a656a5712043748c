"""The process that writes checkpoints: `python -m overwatch_rl.checkpoints.writer FOLDER KEEP`.

It outlives a trainer that was killed until what was handed over is on the disk. Must not import torch.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from safetensors import TensorSpec

from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.writing import Retention, write_checkpoint
from overwatch_rl.handover.receiver import Parcel, Receiver, run


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one save."""

    updates: int
    path: str
    size_bytes: int = 0
    duration_s: float = 0.0
    """Seconds that writing took."""
    error: str | None = None
    """Why there is no checkpoint; `None` when there is."""


def specs(parcel: Parcel) -> dict[str, dict[str, TensorSpec]]:
    """By file, then by name: the tensors of a parcel, of which each is called `file:name`."""
    files: dict[str, dict[str, TensorSpec]] = {}
    for key, piece in parcel.pieces.items():
        file, _, name = key.partition(":")
        files.setdefault(file, {})[name] = TensorSpec(
            dtype=piece.dtype, shape=list(piece.shape), data_ptr=parcel.address(piece), data_len=piece.size
        )
    return files


def serve(receiver: Receiver, arguments: Sequence[str]) -> None:
    """Write each."""
    folder, retention = Path(arguments[0]), Retention(keep=int(arguments[1]))
    for parcel in receiver.parcels():
        began = time.perf_counter()
        state = msgspec.json.decode(parcel.note, type=State)
        try:
            path, size = write_checkpoint(folder, state, specs(parcel), retention)
        except OSError as error:
            written = Written(updates=state.updates, path=str(folder), error=str(error))
        else:
            written = Written(
                updates=state.updates,
                path=str(path),
                size_bytes=size,
                duration_s=time.perf_counter() - began,
            )
        receiver.answer(parcel, written)


if __name__ == "__main__":
    run(sys.argv[1:], serve)
