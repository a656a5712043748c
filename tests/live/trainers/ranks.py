"""Data-parallel ranks, each a process, that meet at a barrier every update: least squares by gradient.

One of them may learn at another rate, or be killed; the others then go on.
"""

import argparse
import os
import signal
import threading
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

import numpy as np

import overwatch.sdk
from tests.live.trainers.reporting import reporting

RANKS = 3


def rank_of(rank: int, flags: argparse.Namespace, barrier: Barrier) -> None:
    """Train as one rank."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    with reporting(
        run_id=flags.run_id, task="ranks", endpoint=flags.endpoint, sample=False, updates=flags.updates
    ) as run:
        _train(run, rank, flags, barrier)


def _train(run: overwatch.sdk.Run, rank: int, flags: argparse.Namespace, barrier: Barrier) -> None:
    chance, weights = np.random.default_rng(rank), np.zeros(8)
    rate = 0.05 * (40.0 if rank == flags.astray else 1.0)
    meets = barrier.wait(60.0) >= 0
    for update in range(1, flags.updates + 1):
        with run.phase("update"):
            seen = chance.normal(size=(64, 8))
            errors = seen @ weights - seen.sum(axis=1) - chance.normal(size=64)
            gradient = seen.T @ errors / 64
            weights -= rate * gradient
            time.sleep(flags.work)
        if rank == flags.killed and update == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        with run.phase("sync"):
            try:
                meets = meets and barrier.wait(3.0) >= 0
            except threading.BrokenBarrierError:
                meets = False
        run.update(
            update=update,
            grad_norm=float(np.linalg.norm(gradient)),
            value_loss=float((errors**2).mean()),
            learning_rate=rate,
        )


def main() -> None:
    """Start the ranks, and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--work", type=float, default=0.15, help="seconds of an update")
    for name in ("astray", "killed"):
        parser.add_argument(f"--{name}", type=int, default=-1, help="the rank")
    flags = parser.parse_args()
    context = get_context("spawn")
    barrier = context.Barrier(RANKS)
    ranks = [context.Process(target=rank_of, args=(rank, flags, barrier)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()
