"""Small checkpoints of known content, without torch."""

from array import array
from pathlib import Path

from safetensors import TensorSpec

from overwatch.objects.store import Store
from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.store import (
    Files,
    Retention,
    Saved,
    Saving,
    open_place,
    write_checkpoint,
)

FILES = ("policy.safetensors", "optimizer.safetensors", "world.safetensors")


def state(updates: int, *, lineage: int = 1, score: float | None = None, run_id: str = "r") -> State:
    """Of a run without much to it."""
    return State(
        run_id=run_id, lineage=lineage, updates=updates, steps=updates * 8, score=score, plan={}, config={},
        config_hash="c",
    )  # fmt: skip


def files_of(made: State, values: int = 64) -> tuple[Files, object]:
    """Tensors that hold the number of updates, and what they lie in."""
    held = array("f", [float(made.updates)] * values)
    address, size = held.buffer_info()
    spec = TensorSpec(dtype="float32", shape=[size], data_ptr=address, data_len=size * held.itemsize)
    return {name: {"a": spec, "b": spec} for name in FILES}, held


def write(folder: Path, made: State, *, keep: int = 9, values: int = 64, zstd: int = 0) -> Path:
    """A checkpoint in a folder."""
    return Path(upload(open_place(folder), made, keep=keep, values=values, zstd=zstd).where)


def upload(store: Store, made: State, *, keep: int = 9, values: int = 64, zstd: int = 0) -> Saved:
    """A checkpoint in any store."""
    files, _held = files_of(made, values)
    return write_checkpoint(store, made, files, Retention(keep=keep), Saving(zstd=zstd))
