"""Reading a recording: its lives and ticks, and what is done about lines that cannot be read."""

import io
import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from copy import copy
from pathlib import Path

import msgspec
import pytest

from overwatch import codec
from overwatch.aggregator import Checkpoint
from overwatch.analyse.export import TABLES, export
from overwatch.analyse.run_history import RunHistory
from overwatch.events import Event, Origin, Record
from overwatch.feeds.checkpoints import VARIABLE
from overwatch.feeds.recording import Recording, RecordingError, open_recording
from overwatch.fold import FAST_NS, SLOW_NS, LifeStarted
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.recordings import checkpoints as module
from overwatch.recordings.checkpoints import FOLDER, Leaving, left_in
from overwatch.recordings.compaction import Rules
from overwatch.runs import Room
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.analyse.reading import every as stories_of
from tests.overwatch.feeds.recordings import Written, resumed_life, second_of, two_lives
from tests.overwatch.recordings.folders import Recorder


def _updates(recording: Recording) -> list[int]:
    """The update of each recorded snapshot."""
    return [snapshot.run.update or 0 for snapshot in recording.recorded()]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """Header, lives and their ticks; every tick is there once, in order, without those of the gap."""
    recording = Recording(two_lives(tmp_path))
    ticks = [frame.tick for frame in recording.frames()]
    lives = [(second_of(s.first), second_of(s.last)) for s in recording.segments()]

    assert lives == [(0.1, 8.0), (28.4, 33.0)]
    assert ticks == sorted(set(ticks))
    assert len(ticks) == 80 + 47
    assert (recording.bad_lines, recording.bad_batches) == (0, 0)


def test_recorded_snapshots_are_those_of_the_frames(tmp_path: Path) -> None:
    """The quick way and the frame by frame way give the same bytes."""
    folder = two_lives(tmp_path)
    framed = [codec.encode(s) for frame in Recording(folder).frames() for s in frame.recorded]

    assert [codec.encode(s) for s in Recording(folder).recorded()] == framed
    assert len(framed) == 8 + 5


def test_a_second_life_begins_empty(tmp_path: Path) -> None:
    """What the first collector knew is not known to the second."""
    snapshots = list(Recording(two_lives(tmp_path)).recorded())

    assert snapshots[7].run.task == "digits"
    assert snapshots[8].run.task is None
    assert snapshots[8].policy["kl_divergence"].status == "critical"


def test_a_life_that_goes_on_knows_what_the_one_before_knew(tmp_path: Path) -> None:
    """The first life is taken up to the checkpoint, the gap is left out, and the fold is the same."""
    recording = Recording(resumed_life(tmp_path))
    lives = [(second_of(s.first), second_of(s.last)) for s in recording.segments()]
    snapshots = list(recording.recorded())

    assert lives == [(0.1, 7.0), (28.4, 33.0)]
    assert snapshots[7].run.task == "digits"
    assert snapshots[-1].run.update == 329


def test_an_index_without_start_or_end_is_replayed(tmp_path: Path) -> None:
    """The clock begins with the first batch and stops with the last."""
    written = Written(tmp_path)
    written.update(2.0)
    written.update(4.5)
    frames = list(Recording(written.close()).frames())

    assert second_of(frames[0].tick) == 2.1
    assert second_of(frames[-1].tick) == 4.6
    assert frames[-1].tower.batches == 2


def test_batches_after_an_end_without_a_start_come_after_it(tmp_path: Path) -> None:
    """No tick is taken twice, whatever the index states."""
    written = Written(tmp_path)
    written.start()
    written.update(1.0)
    written.end(5.0)
    written.update(2.0)
    recording = Recording(written.close())
    ticks = [frame.tick for frame in recording.frames()]

    assert ticks == sorted(set(ticks))
    assert list(recording.frames())[-1].tower.batches == 2


def test_a_start_alone_is_no_life(tmp_path: Path) -> None:
    """A collector that received nothing and did not end leaves nothing to replay."""
    written = Written(tmp_path)
    written.start()
    recording = Recording(written.close())

    assert recording.segments() == []
    assert list(recording.frames()) == []


def test_bad_index_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    """Garbage, a wrong type, an unknown field, impossible numbers: their neighbours are unharmed."""
    folder = two_lives(tmp_path)
    index = folder / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    good = json.loads(lines[3])
    wrong = [
        b"\xff\xfe\n", b"[]\n", b'{"end": "soon"}\n', b"\n",
        *(json.dumps({**good, **more}).encode() + b"\n" for more in (
            {"stamp": -1}, {"stamp": 1 << 70}, {"offset": -5}, {"length": 1.5}, {"signal": "smoke"},
            {"more": 1},
        )),
    ]  # fmt: skip
    before = _updates(Recording(folder))
    index.write_bytes(b"".join([*lines[:5], *wrong, *lines[5:]]))
    recording = Recording(folder)

    assert _updates(recording) == before
    assert recording.bad_lines == len(wrong)


@pytest.mark.parametrize(
    ("of_index", "of_logs", "bad_lines", "bad_batches"),
    [(1, 1, 0, 0), (10, 2, 1, 1), (10, 40, 1, 1), (40, 0, 1, 0), (0, 40, 0, 1)],
)
def test_a_torn_tail_is_read_as_far_as_it_goes(
    tmp_path: Path, of_index: int, of_logs: int, bad_lines: int, bad_batches: int
) -> None:
    """The files end in the middle: what is whole is replayed, what is not is counted."""
    folder = two_lives(tmp_path)
    for name, cut in (("index.jsonl", of_index), ("logs.jsonl", of_logs)):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) - cut])
    recording = Recording(folder)

    assert _updates(recording)[:12] == _updates(Recording(two_lives(tmp_path / "whole")))[:12]
    assert (recording.bad_lines, recording.bad_batches) == (bad_lines, bad_batches)


def test_every_truncation_of_an_index_is_readable(tmp_path: Path) -> None:
    """At whatever byte the index ends, reading it does not fail."""
    written = Written(tmp_path)
    written.start()
    written.update(0.2)
    written.update(0.4)
    written.end(1.0)
    folder = written.close()
    whole = (folder / "index.jsonl").read_bytes()
    for length in range(len(whole)):
        (folder / "index.jsonl").write_bytes(whole[:length])
        recording = Recording(folder)
        assert len(list(recording.frames())) <= 10
        assert recording.bad_lines <= 1


def test_a_data_file_that_is_gone_leaves_ticks_without_batches(tmp_path: Path) -> None:
    """The index alone is counted, not a crash."""
    folder = two_lives(tmp_path)
    (folder / "logs.jsonl").unlink()
    recording = Recording(folder)

    assert list(recording.recorded()) == []
    assert recording.bad_batches == 41 + 23


def test_a_batch_that_cannot_be_read_counts_once(tmp_path: Path) -> None:
    """Reading the same entry again does not count it again."""
    folder = two_lives(tmp_path)
    (folder / "logs.jsonl").write_bytes(b"")
    recording = Recording(folder)
    entries = recording.segments()[0].entries[:2]

    assert recording.read(entries) == recording.read(entries) == []
    assert recording.bad_batches == 2


def test_an_index_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    """A recording reads no file outside of its folder."""
    folder = two_lives(tmp_path)
    index = folder / "index.jsonl"
    index.write_bytes(index.read_bytes().replace(b'"logs.jsonl"', b'"../logs.jsonl"'))

    with pytest.raises(RecordingError, match=r"points outside of its folder: '\.\./logs\.jsonl'"):
        list(Recording(folder).frames())


def test_another_version_of_the_index_is_refused(tmp_path: Path) -> None:
    """The message names both versions."""
    (tmp_path / "index.jsonl").write_text(
        '{"overwatch_index": 2, "version": "9", "fast_ms": 100, "slow_ms": 1000}\n'
    )

    with pytest.raises(RecordingError, match="index version 2 is not 1"):
        Recording(tmp_path).segments()


def test_a_recording_is_found_in_its_folder_or_in_otlp(tmp_path: Path) -> None:
    """The folder with the index and the one above it both name the recording; others are refused."""
    two_lives(tmp_path / "out" / "otlp")

    assert open_recording(tmp_path / "out").folder == tmp_path / "out" / "otlp"
    assert open_recording(tmp_path / "out" / "otlp").folder == tmp_path / "out" / "otlp"
    with pytest.raises(RecordingError, match=r"holds neither index\.jsonl nor otlp/index\.jsonl"):
        open_recording(tmp_path)
    with pytest.raises(RecordingError, match=r"has no index\.jsonl"):
        Recording(tmp_path)


def test_a_batch_on_a_tick_belongs_to_it(tmp_path: Path) -> None:
    """A stamp equal to a tick is folded at that tick, one nanosecond later at the next."""
    written = Written(tmp_path)
    written.start()
    at = START_NS + SECOND
    written.emit(1.0 - 1e-9, [fakes.policy(at, 1, kl_divergence=0.01)])
    written.emit(1.0, [fakes.policy(at, 2, kl_divergence=0.02)])
    segment = Recording(written.close()).segments()[0]

    assert list(segment.due) == [at, at + FAST_NS]


def test_how_runs_are_judged_is_read_from_the_start(tmp_path: Path) -> None:
    """The limits that a collector was configured with judge the replay too."""
    limits = []
    for name, body in (("usual", b"{}"), ("other", b'{"preset":"ppo-continuous"}')):
        written = Written(tmp_path / name)
        written.start(body=body)
        written.update(0.5)
        *_, frame = Recording(written.close()).frames()
        limits.append(next(iter(frame.snapshots.values())).policy["entropy"].limit)

    assert limits[0] != limits[1]


EVERY_NS = 5 * SLOW_NS
LIVES = {"again": (0, 3), "b": (1, 24), "short": (11.5, 12.5), "d": (13, 21), "e": (22, 38), "last": (36, 40)}
"""From which second to which; `short` makes room for `d` between two checkpoints: there are two at most."""
AGAIN_S = 37.0
"""At which the run `again`, evicted long ago, goes on."""
RESTARTS = {17.0: 16.5, 30.0: None}
"""Second at which a life begins, and that after which it goes on; `None`: with nothing."""
END_S = 40


class Several(Recorder):
    """A recording of several runs."""

    def emit(self, run_id: str, second: float, events: Sequence[Event]) -> None:
        """One batch of a run."""
        origin = Origin(run_id=run_id, epoch=f"epoch-{run_id}", ours=True)
        records = [Record(origin=origin, event=one, seq=self._seq + i) for i, one in enumerate(events)]
        self._seq += len(events)
        self.write(second, Signal.LOGS, request(records, {}))

    def start(self, second: float, after: float | None) -> None:
        """A life of a collector that holds two runs."""
        self.sequence += 1
        tick = None if after is None else START_NS + round(after * SECOND)
        life = LifeStarted(version="1", pid=1, config_digest="", after=tick, room=Room(runs=2))
        stamp = START_NS + round(second * SECOND) + 1
        body = msgspec.json.encode(life)
        self.writer.start(Batch(sequence=self.sequence, stamp=stamp, signal=Signal.START, body=body))
        self.newest = stamp

    def step(self, run_id: str, second: float, first: float, last: float) -> None:
        """What a run emits in half a second."""
        at, index = START_NS + round(second * SECOND), round((second - first) * 2)
        events: list[Event] = [] if index else [fakes.started(at)]
        kl = 0.01 + (index % 7) / 1000 if index % 20 < 15 else 0.4
        events += [fakes.policy(at, index, kl_divergence=kl), fakes.envs(at, [0, 1], index, reward=[kl, 1.0])]
        if index % 12 == 7:
            events.append(fakes.crashed(at, 1))
        if second + 0.5 >= last:
            events.append(fakes.finished(at))
        self.emit(run_id, second, events)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier replay left is not what is tried here."""
    monkeypatch.setenv(VARIABLE, "off")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Several:
    """Runs that come and go over three lives of a collector, in pieces, with what it leaves."""
    folder = tmp_path_factory.mktemp("recorded")
    recorder = Several(folder, Rules(thins=False))
    recorder.start(0, None)
    for half in range(END_S * 2):
        second = half / 2
        if second in RESTARTS:
            recorder.start(second, RESTARTS[second])
        for run_id, (first, last) in LIVES.items():
            if first <= second < last:
                recorder.step(run_id, second, first, last)
        if AGAIN_S <= second < AGAIN_S + 2:
            recorder.step("again", second, AGAIN_S, AGAIN_S + 2)
        if second % 5 == 4:
            recorder.writer.rotate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EVERY_NS", EVERY_NS)
        leave(folder)
    return recorder


@pytest.fixture
def recorder(recorded: Several, tmp_path: Path) -> Several:
    """The same, for one test."""
    shutil.copytree(recorded.folder, tmp_path, dirs_exist_ok=True)
    mine = copy(recorded)
    mine.folder = tmp_path
    return mine


def leave(folder: Path) -> None:
    """Leave the checkpoints that a collector would."""
    leaving, position = Leaving(folder, 1 << 40), 1
    recording = Recording(folder)
    for fold, tick, batches in recording.ticks():
        fold.take(tick, batches, recording.notes.muted(tick))
        position = max([position, *(batch.sequence + 1 for batch in batches)])
        leaving.take(Checkpoint(tick=tick, position=position, batches=fold.tower.batches,
                                ticks=fold.tower.ticks, fold=fold.dump()))  # fmt: skip
    assert len(left_in(folder)) >= 7


def exported(run_history: RunHistory) -> list[bytes]:
    """Every table of a run, and its OpenMetrics."""
    return [*(_printed(run_history, "csv", table) for table in TABLES), _printed(run_history, "openmetrics")]


def _printed(run_history: RunHistory, *words: str) -> bytes:
    printed = io.BytesIO()
    text = io.TextIOWrapper(printed)  # held: with it the bytes would be closed
    with redirect_stdout(text):
        export(run_history, words[0], Path("-"), *words[1:])
    return printed.getvalue()


def check(folder: Path) -> dict[str, int]:
    """Each run alone is as it is among all; returns how many ticks were folded for it."""
    every = stories_of(folder)
    for run_id, run_history in every.items():
        alone = stories_of(folder, run_id)
        assert list(alone) == [run_id]
        assert exported(alone[run_id]) == exported(run_history), run_id
    assert every
    return {run_id: sum(1 for _ in Recording(folder).ticks(run_id)) for run_id in every}


def test_a_run_of_many_is_read_from_the_checkpoint_before_it(recorder: Several) -> None:
    """Over rotation, restarts and eviction, in a packed recording: the same bytes of much less."""
    recorder.tidy()
    folded = check(recorder.folder)
    whole = sum(1 for _ in Recording(recorder.folder).ticks())

    assert set(folded) == set(LIVES)
    assert folded["again"] == whole
    assert folded["short"] < whole * 0.8
    assert folded["e"] < whole * 0.6
    assert folded["last"] < whole * 0.2


def test_what_is_not_packed_is_looked_through(recorder: Several) -> None:
    """Its index does not name runs, and its lines do."""
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.2


def test_a_run_of_a_thinned_recording_is_the_same_too(recorder: Several) -> None:
    """Where a replay goes on from what the collector left, with numbers or batches gone."""
    thinning = Rules(whole_minutes=0.1, second_hours=0.1, piece_mib=1e-4)
    recorder.tidy(now=recorder.newest + 3600 * SECOND, rules=thinning)
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.3
    recorder.tidy(rules=msgspec.structs.replace(thinning, max_days=20 / 86_400))
    assert "last" in check(recorder.folder)
    opened = Recording(recorder.folder)
    opened.segments()
    assert opened.notes.gone


@pytest.mark.parametrize("change", ["none", "damaged"])
def test_without_checkpoints_that_can_be_read_the_life_is_folded(recorder: Several, change: str) -> None:
    """The last run is in the last life, which began with nothing."""
    recorder.tidy()
    for path in (recorder.folder / FOLDER).iterdir():
        if change == "none":
            path.unlink()
        else:
            path.write_bytes(b"damaged")
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.3
    assert folded["e"] == folded["again"]


def test_a_run_that_is_not_there_is_looked_for_everywhere(recorder: Several) -> None:
    """So that those that are there can be named."""
    recorder.tidy()
    assert set(stories_of(recorder.folder, "nope")) == set(LIVES)
