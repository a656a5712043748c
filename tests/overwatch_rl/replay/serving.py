"""A replay server as its own process, and chunks that actors send it."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from overwatch_rl.protos.replay.v1 import replay_pb2 as pb
from overwatch_rl.replay import messages
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, End, encode

ENCODING = Encoding(
    columns=(
        Column("observation", "float32", (3,)),
        Column("action", "int64"),
        Column("reward", "float32"),
        Column("final_observation", "float32", (3,), per_step=False),
    )
)
COMMAND = (sys.executable, "-m", "overwatch_rl.cli", "replay-server")


@dataclass(slots=True)
class Served:
    """A server that runs."""

    process: "subprocess.Popen[str]"
    greeting: str

    @property
    def address(self) -> str:
        """`host:port`."""
        found = re.search(r"grpcs?://(\S+?),", self.greeting)
        assert found is not None, self.greeting
        return found[1]

    @property
    def port(self) -> int:
        """Of the address."""
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait(30)


@contextmanager
def served(
    folder: Path, *flags: str, port: int = 0, tables: Sequence[str] = ("experience",)
) -> Iterator[Served]:
    """A server, with telemetry off, from when it answers; ended by SIGTERM, which must be status 0."""
    named = [part for table in tables for part in ("--table", table)]
    command = [*COMMAND, "--listen", f"127.0.0.1:{port}", *named]
    command += ["--no-telemetry", *flags]
    with (folder / "replay-server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
    assert process.stdout is not None
    try:
        greeting = process.stdout.readline()
        assert greeting, (folder / "replay-server.log").read_text()
        yield Served(process, greeting)
    finally:
        was_killed = process.poll() is not None
        if not was_killed:
            process.send_signal(signal.SIGTERM)
        status = process.wait(30)
        process.stdout.close()
        assert was_killed or status == 0, (folder / "replay-server.log").read_text()


def chunk(env: str = "env-0", episode: int = 0, first: int = 0, steps: int = 4, end: End = "cut") -> Chunk:
    """Steps whose observations state which they are."""
    numbers = np.arange(first, first + steps, dtype=np.float32)
    rows = {
        "observation": np.stack([numbers, np.full(steps, episode, np.float32), numbers * 0], axis=1),
        "action": np.arange(first, first + steps, dtype=np.int64) - 1,
        "reward": numbers / 2,
    }
    if end != "terminated":
        rows["final_observation"] = np.array([first + steps, episode, 0], np.float32)
    return Chunk(
        run="run", env=env, episode=episode, first_step=first, steps=steps, lineage=0, version=1, end=end,
        columns=encode(rows, ENCODING),
    )  # fmt: skip


def message(of: Chunk) -> pb.Chunk:
    """As protobuf itself has it."""
    return messages.chunk_message(of, ENCODING)
