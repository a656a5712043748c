"""The collector killed under load: nothing acknowledged is missing, altered or seen twice."""

from collections import Counter
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.recording import Recording
from overwatch.fold import Fold
from overwatch.recordings.index import Located, Started
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import PER_REQUEST, Collector, Sender, indexed, kill_over_and_over, told


def last_fold(recording: Recording) -> Fold:
    """The fold at the end of a replay."""
    fold = Fold()
    for fold, tick, batches in recording._ticks():
        fold.skip(tick, batches)
    return fold


def seen_lines(fold: Fold) -> dict[str, int]:
    """How many lines of each run a user sees."""
    return {run_id: tracked.state.feed_total for run_id, tracked in fold._runs.items()}


def check(collector: Collector, senders: list[Sender]) -> int:
    """Hold the recording and the tower against what was acknowledged; returns how many lines that were."""
    copies = Counter(told(collector.folder / "otlp"))
    for sender in senders:
        found = {number for run_id, number in copies if run_id == sender.run_id}
        assert found == set(range(1, sender.acknowledged + 1))
        for first, attempts in sender.attempts.items():
            for number in range(first, first + PER_REQUEST):
                assert 1 <= copies[sender.run_id, number] <= attempts
    found = indexed(collector.folder / "otlp")
    sequences = [entry.sequence for entry in found if isinstance(entry, Located | Started)]
    assert sequences == list(range(1, len(sequences) + 1))
    return sum(sender.acknowledged for sender in senders)


def survive(folder: Path, cycles: int, *sets: str) -> tuple[Collector, int]:
    """Kill a collector so often while three senders tell it lines; returns it and how many lines."""
    collector = Collector(folder, *sets)
    senders = [Sender(f"run-{number}", collector) for number in range(3)]
    kill_over_and_over(collector, senders, cycles, seed=cycles)
    lines = {sender.run_id: sender.acknowledged for sender in senders}
    endpoints = collector.endpoints
    assert endpoints is not None
    until(lambda: all(snapshot_of(endpoints, run) for run in lines), "the runs to be shown", 120)
    collector.stop()
    assert check(collector, senders) == sum(lines.values())
    assert "Traceback" not in collector.log
    return collector, sum(lines.values())


def test_ten_kills_cost_nothing(tmp_path: Path) -> None:
    """Every acknowledged line is in the recording, and a replay over all lives counts each line once."""
    collector, lines = survive(tmp_path, 10)

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


def test_ten_kills_of_one_whose_files_rotate_cost_nothing(tmp_path: Path) -> None:
    """The same where new files begin each second and old ones are packed and joined meanwhile."""
    below = "exporters.otlp_file.rotation"
    collector, lines = survive(tmp_path, 10, f"{below}.max_minutes=0.01", f"{below}.max_megabytes=1")

    recording = Recording(collector.folder / "otlp")
    assert sum(seen_lines(last_fold(recording)).values()) == lines
    assert recording.bad_batches == recording.bad_lines == 0
    assert list((collector.folder / "otlp").glob("index-*.jsonl.zst"))


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_a_thousand_kills_cost_nothing(tmp_path: Path) -> None:
    """A thousand lives, each unaided; how soon each was ready is printed."""
    collector, lines = survive(tmp_path, 1000)

    ready = sorted(collector.ready_s)
    p99 = ready[int(len(ready) * 0.99)]
    print(f"1000 kills: {lines} acknowledged lines, ready p50 {ready[500]:.2f} s, p99 {p99:.2f} s")
    assert len(ready) == 1001
