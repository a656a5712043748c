"""A process for tests: writes each parcel into a folder once no file `hold` is there, and answers."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from safetensors import TensorSpec, serialize_file

from overwatch_rl.handover.receiver import Receiver, run


def serve(receiver: Receiver, arguments: Sequence[str]) -> None:
    """Until the sender is done or gone."""
    folder = Path(arguments[0])
    for block in receiver.blocks():
        while (folder / "hold").exists():
            time.sleep(0.01)
        number = msgspec.json.decode(block.note, type=int)
        specs = {
            name: TensorSpec(
                dtype=piece.dtype,
                shape=list(piece.shape),
                data_ptr=block.address(piece),
                data_len=piece.size,
            )
            for name, piece in block.pieces.items()
        }
        serialize_file(specs, folder / f"{number}.safetensors")
        receiver.answer(block, number)
    (folder / "ending").write_text(f"farewell {receiver.has_closing}")
    (folder / "ending").rename(folder / "ended")


if __name__ == "__main__":
    run(sys.argv[1:], serve)
