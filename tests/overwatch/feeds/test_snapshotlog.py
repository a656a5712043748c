"""A run is compared with another one: read from its recording, in a start record, or given to replay."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from overwatch import codec
from overwatch.feeds.recording import RecordingError, open_recording
from overwatch.feeds.snapshotlog import read_baseline
from overwatch.fold import FAST_NS, Fold, LifeStarted, next_tick
from overwatch.journal import Batch, Signal
from overwatch.serve.recording import RecordingWriter
from overwatch.simulate import Script, Settings, Teller
from overwatch.snapshot import Baseline, Snapshot, View
from tests.fakes import START_NS
from tests.overwatch.simulate.runs import overwatch, record

SMALL = ("--gpus", "1", "--envs", "4", "--slots", "0", "--rate", "2")
FASTER = Baseline(name="faster", unit="steps", rate=16.0)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty seconds of a run that takes eight steps a second."""
    return record(tmp_path_factory.mktemp("run") / "a", *SMALL, "--seconds", "50", "--run-id", "a")


def _batches(baseline: Baseline | None) -> Iterator[Batch]:
    """A start record with a baseline, and the run."""
    life = LifeStarted(version="1", pid=1, config_digest="", baseline=baseline)
    yield Batch(sequence=1, stamp=START_NS, signal=Signal.START, body=msgspec.json.encode(life))
    settings = Settings(gpus=1, envs=4, slots=0, rate_hz=2, seconds=50, run_id="a")
    for sequence, reported in enumerate(
        Teller("a", "e").report(Script(settings, START_NS).moments()), start=2
    ):
        yield Batch(sequence=sequence, stamp=reported.at + 1, signal=Signal.LOGS, body=reported.body)


def _codes(snapshots: list[Snapshot]) -> set[str]:
    return {finding.code for snapshot in snapshots for finding in snapshot.findings}


@pytest.mark.parametrize("place", [".", "otlp", "snapshots.jsonl"])
def test_a_recording_shows_how_much_its_run_got_done(recording: Path, place: str) -> None:
    """By the folder, by its folder of OTLP files, or by its log of snapshots."""
    found = read_baseline(recording / place)

    assert (found.name, found.unit) == ("a", "steps")
    assert found.rate == pytest.approx(8.0)


def test_a_recording_without_snapshots_is_folded(recording: Path, tmp_path: Path) -> None:
    """It shows the same."""
    (tmp_path / "otlp").symlink_to(recording / "otlp")

    assert read_baseline(tmp_path) == read_baseline(recording)


def test_what_holds_no_measured_run_is_reported(tmp_path: Path) -> None:
    """A log without a run, a run that was too short, a folder without either."""
    empty = tmp_path / "snapshots.jsonl"
    empty.write_text("\n{broken\n")
    short = record(tmp_path / "short", *SMALL, "--seconds", "5")

    for path in (empty, short):
        with pytest.raises(RecordingError, match="holds no run whose throughput was measured"):
            read_baseline(path)
    with pytest.raises(RecordingError, match="no recording"):
        read_baseline(tmp_path / "short" / "nothing")


def test_a_start_record_states_the_baseline_and_a_recording_keeps_it(tmp_path: Path) -> None:
    """The replay finds what was found live, at the same moments, through checkpoints too."""
    writer, live = RecordingWriter(tmp_path / "otlp", (Signal.LOGS,)), list[bytes]()
    fold, tick, waiting = Fold(), next_tick(START_NS), list(_batches(FASTER))
    for batch in waiting:
        if batch.signal is Signal.START:
            writer.start(batch)
        else:
            writer.write(batch)
    while waiting:
        due = [batch for batch in waiting if batch.stamp <= tick]
        del waiting[: len(due)]
        live += [codec.encode(snapshot) for snapshot in fold.skip(tick, due)]
        if tick % (10 * FAST_NS) == 0:
            fold = Fold.load(fold.dump())
        tick += FAST_NS
    writer.end(tick - FAST_NS)
    writer.close()
    *replayed, last = open_recording(tmp_path).recorded()

    assert round(last.time * 1e9) == tick - FAST_NS
    assert _codes([codec.decode(line) for line in live]) == {"throughput-below-baseline"}
    assert [codec.encode(snapshot) for snapshot in replayed] == live


def test_a_replay_is_compared_with_what_it_is_given(recording: Path, tmp_path: Path) -> None:
    """`overwatch replay --baseline` and `overwatch tui --replay --baseline --once`."""
    last = codec.decode((recording / "snapshots.jsonl").read_bytes().splitlines()[-1])
    throughput = last.run.throughput
    assert throughput is not None
    better = msgspec.structs.replace(
        last, run=msgspec.structs.replace(last.run, throughput=msgspec.structs.replace(throughput, now=80.0))
    )
    faster = tmp_path / "snapshots.jsonl"
    faster.write_bytes(codec.encode(better) + b"\n")

    there = ("--at", "48", "--baseline", faster)
    shown = overwatch("replay", recording, *there)
    once = overwatch("tui", "--replay", recording, *there, "--once", "--format", "json")
    plain = overwatch("replay", recording, "--at", "48")

    for reported in (shown, once):
        assert reported.exit_code == 0, reported.output
        assert [finding["code"] for finding in json.loads(reported.output)["findings"]] == [
            "throughput-below-baseline"
        ]
    assert json.loads(plain.output)["findings"] == []


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        (("replay", "--digest"), "leave --baseline out"),
        (("tui",), "--baseline is for a recording here"),
    ],
)
def test_a_baseline_that_changes_nothing_is_bad_usage(
    recording: Path, words: tuple[str, ...], stated: str
) -> None:
    """It is stated where it belongs."""
    paths = (recording,) if words[0] == "replay" else ()
    result = overwatch(words[0], *paths, *words[1:], "--baseline", recording)

    assert result.exit_code == 2
    assert stated in result.output


def test_a_life_without_a_baseline_compares_with_none() -> None:
    """What an earlier life of the collector was given is over."""
    fold, tick = Fold(), next_tick(START_NS) + 60 * 10 * FAST_NS
    batches = list(_batches(FASTER))
    later = Batch(sequence=10**6, stamp=tick - 1, signal=Signal.START, body=b'{"baseline":null}')
    snapshot = fold.advance(tick, batches, ()).snapshots["a", View()]
    after = fold.advance(tick + FAST_NS, [later], ()).snapshots["a", View()]

    assert snapshot.run.throughput is not None
    assert after.run.throughput is not None
    assert snapshot.run.throughput.baseline == FASTER
    assert after.run.throughput.baseline is None
