"""A rollouts service, `overwatch-rl rollouts`, with a trainer of it and handlers in processes of their own.

The fault comes after a while: handlers leave or are killed, the trainer takes nothing more, or goes on to
newer versions without what waits. What is reported is what the server counts.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from overwatch_rl.rollouts.calls import Target
from overwatch_rl.rollouts.client import Assignment, Group, Handler, Settings
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch

HANDLERS: Final = 2
BATCH: Final = 8
SERVER: Final = (
    "--listen", "127.0.0.1:0", "--durability", "memory", "--env-lease-s", "3",
)  # fmt: skip
PACE_S: Final = 0.2
FAULT_S: Final = 5.0
"""From then on the fault is there."""


@contextlib.contextmanager
def server(run_id: str, endpoint: str, batches: int) -> Iterator[str]:
    """The real program; its address."""
    command = [
        sys.executable,
        "-m",
        "overwatch_rl.cli",
        "rollouts",
        *SERVER,
        "--max-queued-batches",
        str(batches),
    ]
    process = subprocess.Popen(
        [*command, "--run-id", run_id, "--endpoint", endpoint], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[3].rstrip(",")
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def handle(url: str) -> None:
    """Generate until a signal asks to leave."""

    def generate(_: Assignment) -> Group:
        time.sleep(PACE_S)
        return {"tokens": [[1, 2], [3]], "masks": [[-100, 2], [3]], "scores": [0.5, 1.0]}

    handler = Handler(Settings(url=url, name="maths", group_size=2, patience_s=5.0))
    signal.signal(signal.SIGTERM, lambda *_: handler.stop())
    handler.run(generate)


def train(trainer: Consumer, fault: str, until: float, versions: Iterator[int]) -> None:
    """Ask each fifth of a second; learn from what comes, unless the fault is that it does not."""
    while time.monotonic() < until:
        if fault == "stale":
            # It learns from elsewhere, so that what waits is too old before it is taken.
            next(versions)
            trainer.state_version(next(versions))
        elif fault != "full" and isinstance(batch := trainer.try_batch(), LeasedBatch):
            trainer.state_version(next(versions))
            trainer.acknowledge(batch)
        time.sleep(5 * PACE_S if fault == "stale" else PACE_S)


def main() -> None:
    """Serve, generate, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--fault", choices=("none", "starved", "full", "stale", "dead"), default="none")
    parser.add_argument("--seconds", type=float, default=50.0, help="for which the fault is there")
    flags = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    # Handlers with tickets never queue more than two batches here.
    with server(flags.run_id, flags.endpoint, 2 if flags.fault == "full" else 8) as url:
        trainer, versions = Consumer(Target(url=url)), itertools.count(1)
        trainer.register(batch_size=BATCH, max_token_len=8, max_staleness=1)
        trainer.try_batch()
        handlers = [processes.Process(target=handle, args=(url,), daemon=True) for _ in range(HANDLERS)]
        for handler in handlers:
            handler.start()
        # Begun when the first batch came, so that a machine with much to do has handlers too.
        while not isinstance(batch := trainer.try_batch(), LeasedBatch):
            time.sleep(PACE_S)
        trainer.acknowledge(batch)
        train(trainer, "none", time.monotonic() + FAULT_S, versions)
        if flags.fault == "dead":
            os.kill(handlers[0].pid or 0, signal.SIGKILL)
        for handler in handlers if flags.fault == "starved" else ():
            handler.terminate()
        train(trainer, flags.fault, time.monotonic() + flags.seconds, versions)
        for handler in handlers:
            handler.terminate()
            handler.join(30)
            handler.kill()
        trainer.close()


if __name__ == "__main__":
    main()
