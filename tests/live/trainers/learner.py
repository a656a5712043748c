"""A learner and the actor that feeds it by a queue; it loads data, hands out weights and saves checkpoints.

Each of these can be made slow; the disk that it saves to and the memory that it has may fill.
"""

import argparse
import queue
import threading
import time
from pathlib import Path

import numpy as np
import psutil

import overwatch.sdk
from overwatch.cgroup import ControlGroup
from tests.live.trainers.reporting import reporting


def act(batches: "queue.Queue[np.ndarray]", seconds: float, stop: threading.Event) -> None:
    """Fill the queue, a batch each so many seconds."""
    chance = np.random.default_rng(0)
    while not stop.wait(seconds):
        batches.put(chance.normal(size=(64, 8)))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--acting", type=float, default=0.05, help="seconds of a batch")
    parser.add_argument("--loading", type=float, default=0.0, help="seconds of a read")
    parser.add_argument("--publishing", type=float, default=0.0, help="seconds until actors have the weights")
    parser.add_argument("--out", type=Path, help="folder for checkpoints, one each second update")
    parser.add_argument("--slows-after", type=int, default=1 << 30, help="updates, then loading takes long")
    parser.add_argument("--kib", type=int, default=1, help="of a checkpoint")
    parser.add_argument(
        "--deaf", action="store_true", help="stop what exports, from update 20 to 60, and log much"
    )
    parser.add_argument("--hoards", action="store_true", help="keep every batch, until memory is nearly full")
    flags = parser.parse_args()
    if flags.out is not None:
        flags.out.mkdir(exist_ok=True)
    batches: queue.Queue[np.ndarray] = queue.Queue(4)
    stop = threading.Event()
    actor = threading.Thread(target=act, args=(batches, flags.acting, stop), daemon=True)
    actor.start()
    weights, kept = np.zeros(8), list[bytearray]()
    run_of = reporting(
        run_id=flags.run_id,
        task="learner",
        endpoint=flags.endpoint,
        sample=flags.out is not None or flags.hoards,
    )
    with run_of as run:
        for update in range(1, flags.updates + 1):
            with run.phase("queue_wait"):
                seen = batches.get()
            with run.phase("load"):
                time.sleep(flags.loading + (0.25 if update > flags.slows_after else 0.0))
            with run.phase("update"):
                gradient = seen.T @ (seen @ weights - seen.sum(axis=1)) / len(seen)
                weights -= 0.05 * gradient
                time.sleep(0.1)
            with run.phase("weights"):
                time.sleep(flags.publishing)
            if flags.hoards and (memory := ControlGroup().memory()) and memory.used < 0.96 * memory.limit:
                kept.append(bytearray(b"x" * (3 << 20)))
            if flags.deaf:
                deafen(run, update)
            if flags.out is not None and update % 2 == 0:
                save(run, flags, weights, update)
            run.update(update=update, grad_norm=float(np.linalg.norm(gradient)))
    stop.set()


def deafen(run: overwatch.sdk.Run, update: int) -> None:
    """Stop the process that exports for a while, and log the more."""
    for child in psutil.Process().children() if update in (20, 60) else ():
        child.suspend() if update == 20 else child.resume()
    for line in range(96 if 20 <= update < 60 else 0):
        run.log(f"batch {update}, row {line}: {'x' * 2000}")


def save(run: overwatch.sdk.Run, flags: argparse.Namespace, weights: np.ndarray, update: int) -> None:
    """Write the weights, and what pads them to the size of a checkpoint."""
    path = flags.out / f"{update}.bin"
    try:
        path.write_bytes(weights.tobytes().ljust(flags.kib << 10, b"\0"))
    except OSError as error:
        run.log(f"{path} was not written: {error}", severity="warning")
        return
    run.checkpoint_saved(str(path), update=update, size_bytes=path.stat().st_size)


if __name__ == "__main__":
    main()
