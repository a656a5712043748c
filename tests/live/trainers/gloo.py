"""Two ranks of `overwatch-rl train` over gloo, started by torchrun, of which one gets less of its processor.

It is stopped (SIGSTOP) and continued again and again, as a control group with a small quota does it.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

RANKS = 2
TURN_S = 0.1
STOPPED_S = 0.07
"""Of each turn: it is three times as slow."""
TRAIN = (
    "--world", "goodhart:small", "--envs", "16", "--steps", "64", "--epochs", "1", "--minibatches", "2",
    "--log", "json",
)  # fmt: skip


def started(words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Torchrun with all ranks of the command; behind `--` it leaves every flag to that."""
    head = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    return subprocess.Popen(
        [*head, "-m", "overwatch_rl.cli", "--", "train", *words, *TRAIN],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def rank_of(run: "subprocess.Popen[bytes]", number: int) -> psutil.Process | None:
    """The process of one rank; `None` before it is there."""
    for one in psutil.Process(run.pid).children():
        with suppress(psutil.Error):
            if one.environ().get("RANK") == str(number):
                return one
    return None


def slow(run: "subprocess.Popen[bytes]", number: int) -> None:
    """Take most of a rank's time, until it ends."""
    one = None
    with suppress(psutil.NoSuchProcess):
        while run.poll() is None:
            one = one or rank_of(run, number)
            if one is not None:
                one.suspend()
                time.sleep(STOPPED_S)
                one.resume()
            time.sleep(TURN_S - STOPPED_S)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=-1, help="the rank")
    flags, words = parser.parse_known_args()
    run = started(words)
    try:
        if flags.slow >= 0:
            slow(run, flags.slow)
        run.wait()
    finally:
        run.terminate()
        run.wait()


if __name__ == "__main__":
    main()
