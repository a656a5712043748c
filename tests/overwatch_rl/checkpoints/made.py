"""Small checkpoints of known content, without torch."""

from array import array
from pathlib import Path

from safetensors import TensorSpec

from overwatch_rl.checkpoints.manifest import State
from overwatch_rl.checkpoints.writing import Retention, write_checkpoint

FILES = ("policy.safetensors", "optimizer.safetensors", "world.safetensors")


def state(updates: int, *, lineage: int = 1, score: float | None = None, run_id: str = "r") -> State:
    """Of a run without much to it."""
    return State(
        run_id=run_id, lineage=lineage, updates=updates, steps=updates * 8, score=score, plan={}, config={},
        config_hash="c",
    )  # fmt: skip


def write(folder: Path, made: State, *, keep: int = 9, values: int = 64) -> Path:
    """A checkpoint whose tensors hold the number of updates."""
    held = array("f", [float(made.updates)] * values)
    address, size = held.buffer_info()
    spec = TensorSpec(dtype="float32", shape=[size], data_ptr=address, data_len=size * held.itemsize)
    files = {name: {"a": spec, "b": spec} for name in FILES}
    path, _ = write_checkpoint(folder, made, files, Retention(keep=keep))
    return path
