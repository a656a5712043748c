"""What replay costs: every tick at 64 and 1,024 envs, seeking in an hour, opening a GB, memory on 10 GB.

A recording is made in which every tick has one record of one source, all envs in it, ten times a second.
*Folded* is reading, decoding, folding and judging every tick, the median of several rounds; *a snapshot a
second* makes what `--digest` and the timeline need too, *every tick projected* the snapshot of each tick.
Beside them stands `json.loads` of the same lines, which is what any reader of the file pays at least.
Seeking is measured in a log of an hour that was looked through (which is timed too), to places chosen by
chance.
Large recordings are made by repeating lines at later times. Prints, gates nothing.

    python tests/bench/bench_replay.py [--quick] [--huge]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import google.protobuf
import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.journal import INDEX_VERSION, Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.otlp.jsonl import to_json
from tests import fakes

MARK_S = 1_111_111_111
"""A second that stands for the time of a line that is repeated; so do a step and a sequence number."""
STEP = 987_654_320
SEQ = 987_654_321
ROUNDS = 3
KINDS = 50
"""Different lines that are repeated."""


def templates(envs: int) -> list[bytes]:
    """Lines of one record each, in which a time, a step and a sequence number are to be put."""
    chance = random.Random(envs)  # noqa: S311 numbers for a benchmark
    ids, at = list(range(envs)), MARK_S * SLOW_NS
    found = []
    for _ in range(KINDS):
        values = {
            name: [base + chance.random() / 10 for _ in ids]
            for name, base in (("reward", 1.0), ("step_time", 0.1), ("metric", 0.5))
        }
        records = fakes.records([fakes.envs(at, ids, STEP, **values)], fakes.ORIGIN, SEQ)
        found.append(to_json(Signal.LOGS, request(records, origin_attributes(fakes.ORIGIN))))
    return found


def make(folder: Path, envs: int, ticks: int = 0, most_bytes: int = 1 << 62) -> Path:
    """A recording of so many ticks, or bytes."""
    folder.mkdir(parents=True)
    lines, offset, tick = templates(envs), 0, 0
    with (folder / "index.jsonl").open("wb") as index, (folder / "logs.jsonl").open("wb", 1 << 20) as logs:
        header = {"overwatch_index": INDEX_VERSION, "version": "0", "fast_ms": 100, "slow_ms": 1000}
        index.write(msgspec.json.encode(header) + b"\n")
        while offset < most_bytes and (not ticks or tick < ticks):
            at = fakes.START_NS + tick * FAST_NS
            line = lines[tick % KINDS].replace(b'"%d"' % (MARK_S * SLOW_NS), b'"%d"' % at)
            for mark in (STEP, SEQ):
                line = line.replace(b'"%d"' % mark, b'"%d"' % (tick + 1))
            index.write(
                b'{"sequence":%d,"stamp":%d,"signal":"logs","file":"logs.jsonl","offset":%d,"length":%d}\n'
                % (tick + 1, at + 5_000_000, offset, len(line))
            )
            logs.write(line + b"\n")
            offset, tick = offset + len(line) + 1, tick + 1
    return folder


def timed(what: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def fold(folder: Path) -> None:
    """Read, decode, apply and judge every tick."""
    for taking, tick, batches in Recording(folder).ticks():
        taking.take(tick, batches)


def parse(folder: Path) -> None:
    """The least that a reader does."""
    with (folder / "logs.jsonl").open("rb") as file:
        for line in file:
            json.loads(line)


def drain(items: object) -> None:
    """Take all."""
    for _ in items:  # type: ignore[attr-defined]
        continue


def speed(at: Path, envs: int, seconds: int) -> None:
    """How many times as fast as it was recorded."""
    folder = make(at / f"{envs}", envs, seconds * 10)
    folded = sorted(seconds / timed(lambda: fold(folder)) for _ in range(ROUNDS))
    recorded = seconds / timed(lambda: drain(Recording(folder).recorded()))
    projected = seconds / timed(lambda: drain(Recording(folder).frames()))
    parsed = seconds / timed(lambda: parse(folder))
    times = f"{folded[ROUNDS // 2]:,.0f}x real time ({folded[0]:,.0f} to {folded[-1]:,.0f})"
    print(
        f"{envs:>6} envs, {seconds} s: folded {times}, a snapshot a second {recorded:,.0f}x, "
        f"every tick projected {projected:,.0f}x, json.loads alone {parsed:,.0f}x"
    )


def seeking(at: Path, seconds: int, seeks: int) -> None:
    """How long a jump takes."""
    folder = make(at / "hour", 64, seconds * 10)
    player = Player(Recording(folder))
    first = timed(lambda: player.seek(player.last))
    looked = timed(lambda: _look(player))
    chance = random.Random(1)  # noqa: S311 places for a benchmark
    took = sorted(
        timed(lambda: player.seek(chance.randrange(player.first, player.last))) for _ in range(seeks)
    )
    ms = [one * 1e3 for one in took]
    print(
        f"seek in {seconds / 3600:.2f} h of 64 envs: p50 {ms[len(ms) // 2]:.0f} ms, p99 "
        f"{ms[int(len(ms) * 0.99)]:.0f} ms, most {ms[-1]:.0f} ms of {seeks}; to the end before anything is "
        f"known {first:.1f} s, looking through all of it {looked:.1f} s"
    )


def _look(player: Player) -> None:
    while player.look_ahead(1000):
        continue


def opening(at: Path, most_bytes: int) -> None:
    """How long a large recording takes to open, and what memory that and a minute of play take."""
    folder = make(at / "large", 64, most_bytes=most_bytes)
    code = (
        "import sys, time, resource; from pathlib import Path; from overwatch.feeds.inputs import open_input;"
        "from overwatch.feeds.player import player_of; began = time.perf_counter();"
        "player = player_of(open_input(Path(sys.argv[1]))); took = time.perf_counter() - began;"
        "player.seek(player.first + 60 * 10**9);"
        "print(f'{took:.2f} s to the first frame, most memory '"
        "f'{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB')"
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    told = subprocess.run(
        [sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True
    )
    read = timed((folder / "index.jsonl").read_bytes)
    print(
        f"open {size / 1e9:.1f} GB: {told.stdout.strip()}; reading the bytes of its index alone {read:.2f} s"
    )


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="less of everything")
    asked.add_argument("--huge", action="store_true", help="also 10 GB, in the temporary folder")
    options = asked.parse_args()
    versions = (
        f"NumPy {np.__version__}, protobuf {google.protobuf.__version__}, msgspec {msgspec.__version__}"
    )
    print(
        f"Python {sys.version.split()[0]}, {versions}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        speed(at, 64, 60 if options.quick else 600)
        speed(at, 1024, 30 if options.quick else 300)
        seeking(at, 600 if options.quick else 3600, 30 if options.quick else 200)
        opening(at, 1 << 30)
    if options.huge:
        with tempfile.TemporaryDirectory() as folder:
            opening(Path(folder), 10 << 30)


if __name__ == "__main__":
    main()
