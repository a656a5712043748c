"""The collector killed under load: nothing acknowledged is missing, altered or seen twice."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.recording import Recording
from overwatch.fold import Fold
from overwatch.recordings.index import Located, Started
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import (
    PER_REQUEST,
    Collector,
    Sender,
    compiled_in,
    indexed,
    kill_over_and_over,
    reported,
)

PIECES = 20
"""Data folders among which a thousand kills are shared out."""


def last_fold(recording: Recording) -> Fold:
    """The fold at the end of a replay."""
    fold = Fold()
    for fold, tick, batches in recording.ticks():
        fold.skip(tick, batches)
    return fold


def seen_lines(fold: Fold) -> dict[str, int]:
    """How many lines of each run a user sees."""
    return {run_id: tracked.state.feed_total for run_id, tracked in fold._runs.items()}


def check(collector: Collector, senders: list[Sender]) -> int:
    """Hold the recording and the tower against what was acknowledged; returns how many lines that were."""
    copies = Counter(reported(collector.folder / "otlp"))
    for sender in senders:
        found = {number for run_id, number in copies if run_id == sender.run_id}
        assert found == set(range(1, sender.acknowledged + 1))
        for first, attempts in sender.attempts.items():
            for number in range(first, first + PER_REQUEST):
                assert 1 <= copies[sender.run_id, number] <= attempts
    entries = indexed(collector.folder / "otlp")
    sequences = [entry.sequence for entry in entries if isinstance(entry, Located | Started)]
    assert sequences == list(range(1, len(sequences) + 1))
    return sum(sender.acknowledged for sender in senders)


def spread(sorted_s: list[float]) -> str:
    """Figures of times."""
    p50, p99 = sorted_s[len(sorted_s) // 2], sorted_s[int(len(sorted_s) * 0.99)]
    return f"{len(sorted_s)} times, p50 {p50:.2f} s, p99 {p99:.2f} s, most {sorted_s[-1]:.2f} s"


def run_python(code: str, environment: dict[str, str]) -> float:
    """How long an interpreter takes for it, in seconds."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.monotonic() - began


def survive(
    folder: Path, cycles: int, *sets: str, seed: int | None = None, slow: bool = False, packs: bool = False
) -> tuple[Collector, int]:
    """Kill a collector so often while three senders send it lines; returns it and how many lines.

    `packs`: its last life goes on until something is packed.
    """
    collector = Collector(folder, *sets, slow=slow)
    senders = [Sender(f"run-{number}", collector) for number in range(3)]
    kill_over_and_over(collector, senders, cycles, seed=cycles if seed is None else seed)
    lines = {sender.run_id: sender.acknowledged for sender in senders}
    endpoints = collector.endpoints
    assert endpoints is not None
    until(lambda: all(snapshot_of(endpoints, run) for run in lines), "the runs to be shown", 120)
    if packs:
        until(lambda: list((folder / "otlp").glob("index-*.jsonl.zst")), "a piece to be packed", 120)
    collector.stop()
    assert check(collector, senders) == sum(lines.values())
    assert "Traceback" not in collector.log
    return collector, sum(lines.values())


def test_six_kills_cost_nothing(tmp_path: Path) -> None:
    """Every acknowledged line is in the recording, and a replay over all lives counts each line once."""
    collector, lines = survive(tmp_path, 6)

    recording = Recording(collector.folder / "otlp")
    seen = seen_lines(last_fold(recording))
    assert sum(seen.values()) == lines
    assert recording.bad_batches == recording.bad_lines == 0
    # The last life's frames are those that a replay shows, although its fold came from a checkpoint.
    began = recording.segments()[-1].first
    live = [codec.decode(line) for line in (tmp_path / "snapshots.jsonl").read_bytes().splitlines()]
    replayed = [codec.encode(s) for s in recording.recorded() if s.time * 1e9 >= began]
    assert [codec.encode(s) for s in live if s.time * 1e9 >= began] == replayed
    assert replayed


def test_six_kills_of_one_whose_files_rotate_cost_nothing(tmp_path: Path) -> None:
    """The same on a slow disk where files rotate each second and old ones are packed and joined meanwhile."""
    below = "exporters.otlp_file.rotation"
    collector, lines = survive(
        tmp_path, 6, f"{below}.max_minutes=0.01", f"{below}.max_megabytes=1", slow=True
    )

    recording = Recording(collector.folder / "otlp")
    assert sum(seen_lines(last_fold(recording)).values()) == lines
    assert recording.bad_batches == recording.bad_lines == 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(PIECES))
def test_a_thousand_kills_cost_nothing(tmp_path: Path, seed: int) -> None:
    """In pieces of a data folder each: lives unaided, recorded and replayed without a loss."""
    cycles = 1000 // PIECES
    collector, lines = survive(tmp_path, cycles, seed=seed)

    recording = Recording(collector.folder / "otlp")
    assert sum(seen_lines(last_fold(recording)).values()) == lines
    assert recording.bad_batches == recording.bad_lines == 0
    print(f"{cycles} kills: {lines} acknowledged lines, none missing, altered or doubled")
    print(f"ready after a kill: {spread(sorted(collector.ready_s[1:]))}")
    assert len(collector.ready_s) == cycles + 1


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_collector_is_ready_soon(tmp_path: Path) -> None:
    """A hundred restarts after a kill, one at a time, beside what the interpreter and its imports take."""
    collector = Collector(tmp_path)
    senders = [Sender("run-0", collector)]
    kill_over_and_over(collector, senders, 100, seed=0)
    collector.kill()

    ready = sorted(collector.ready_s[1:])
    print(f"ready after a kill: {spread(ready)}")
    for what in ("pass", "import overwatch.cli, overwatch.config, overwatch.collector"):
        took = sorted(run_python(what, compiled_in(tmp_path / "pycache")) for _ in range(30))
        print(f"python -c '{what}': {spread(took)}")
    assert len(ready) == 100
