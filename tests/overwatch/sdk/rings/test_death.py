"""Either side may be killed at any moment: what the trainer's file has as accepted is read exactly once."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from overwatch.events import LogLine
from overwatch.sdk.conflate import Folded
from overwatch.sdk.frames import Update
from overwatch.sdk.rings.file import W_FOLDED, open_ring
from overwatch.sdk.rings.ringset import NUMBERS, part_of
from overwatch.sdk.rings.source import Item, RingSource

CYCLES = 10
DEADLINE_S = 30.0

TRAINER = """
    import sys
    from pathlib import Path
    from overwatch.events import LogLine, Severity
    from overwatch.sdk.rings.ringset import RingLimits, RingSet
    from overwatch.sdk.rings.encoders import Latest, UpdateWriter

    folder, cycle = Path(sys.argv[1]), int(sys.argv[2])
    limits = RingLimits(numbers_bytes=32768, facts_bytes=16384, forms_bytes=4096, backlog_bytes=65536)
    rings = RingSet("killed", limits, folders=[folder])
    update = UpdateWriter(rings, Latest(), str, print).update
    print("ready", flush=True)
    at = 0
    while True:
        at += 1
        update(update=at, kl=float(at), loss=-float(at))
        rings.put(LogLine(at=at, severity=Severity.INFO, message=f"fact {at}", subsystem="t"))
"""

READER = """
    import os, sys
    from pathlib import Path
    from overwatch.sdk.rings.source import RingSource
    from overwatch.sdk.rings.records import Update, Folded

    source = RingSource(Path(sys.argv[1]))
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    print("ready", flush=True)
    while True:
        for item in source.read(64):
            n = item.content.n if isinstance(item.content, Folded) else 0
            os.write(out, f"{item.ring} {item.sequence} {n}".ljust(31).encode() + b"\\n")
            source.done(item)
"""


def start(body: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Run one side as its own process, and wait until it is at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body), *map(str, arguments)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == b"ready\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process as the kernel does it when memory is short."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def read_all(path: Path) -> tuple[RingSource, list[Item]]:
    """Everything left in a dead trainer's rings."""
    source = RingSource(path)
    items: list[Item] = []
    while found := source.read():
        for item in found:
            source.done(item)
        items += found
    return source, items


def folded_in(folder: Path) -> int:
    """How many updates the trainer's file states were folded."""
    return open_ring(part_of(folder / "killed", NUMBERS)).words[W_FOLDED]


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_killed_trainer_leaves_everything_it_accepted(tmp_path: Path, cycle: int) -> None:
    """Killed at a random moment: every published record is read, whole, in order, and the account holds."""
    chance = random.Random(cycle)  # noqa: S311 a moment, not a secret
    trainer = start(TRAINER, tmp_path, cycle)
    time.sleep(chance.uniform(0.0, 0.1))
    kill(trainer)
    source, items = read_all(tmp_path / "killed")
    facts = [item.content for item in items if isinstance(item.content, LogLine)]
    updates = [item.content for item in items if isinstance(item.content, Update)]
    folded = [item.content for item in items if isinstance(item.content, Folded)]
    assert source.malformed == 0
    assert source.waiting == 0
    assert [fact.message for fact in facts] == [f"fact {at}" for at in range(1, len(facts) + 1)]
    assert all(one.values == {"kl": one.index, "loss": -(one.index or 0)} for one in updates)
    assert sorted(one.index or 0 for one in updates) == list(range(1, len(updates) + 1))
    assert set(source.dropped()) <= {"backlog_full"}
    assert sum(one.n for one in folded) + source.unsaid == folded_in(tmp_path)


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_killed_reader_is_followed_by_one_that_misses_nothing(tmp_path: Path, cycle: int) -> None:
    """Killed again and again: every sequence number is read, twice at most where the release was lost.

    A line of what a reader has seen has 32 bytes: none lies across pages, where a kill may cut a write.
    """
    chance = random.Random(cycle)  # noqa: S311 a moment, not a secret
    trainer = start(TRAINER, tmp_path, cycle)
    seen = tmp_path / "seen"
    for _ in range(2):
        reader = start(READER, tmp_path / "killed", seen)
        time.sleep(chance.uniform(0.0, 0.1))
        kill(reader)
    kill(trainer)
    source, rest = read_all(tmp_path / "killed")
    lines = [tuple(map(int, line.split())) for line in seen.read_text().splitlines()]
    lines += [
        (item.ring, item.sequence, item.count if isinstance(item.content, Folded) else 0) for item in rest
    ]
    for ring in (0, 1):
        read = [sequence for where, sequence, _ in lines if where == ring]
        assert set(read) == set(range(1, max(read, default=0) + 1))
        assert len(read) - len(set(read)) <= 2
    assert source.malformed == 0
    assert source.waiting == 0
    once = {(ring, sequence): n for ring, sequence, n in lines}
    assert sum(once.values()) + source.unsaid == folded_in(tmp_path)
