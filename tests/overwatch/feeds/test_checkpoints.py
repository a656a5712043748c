"""Checkpoints that outlive a replay: near places, the same frames, and nothing believed that changed."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from overwatch import codec
from overwatch.aggregator import Checkpoint
from overwatch.feeds.checkpoints import EVERY_NS, MOST_RECORDINGS, VARIABLE, Lasting, LeftBehind, cache_folder
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording, open_recording
from overwatch.feeds.sources import OtlpFile, Rebuilt
from overwatch.fold import FAST_NS, SLOW_NS, Fold, Frame
from overwatch.journal import Batch, Signal
from overwatch.recordings import checkpoints as module
from overwatch.recordings.checkpoints import FOLDER, Leaving, Left, build, left_in
from overwatch.recordings.compaction import Rules
from overwatch.recordings.stored import StoredFile
from overwatch.snapshot import Baseline, View
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import Written, resumed_life
from tests.overwatch.recordings.folders import Recorder
from tests.overwatch.simulate.runs import record

T = 1_800_000_000 * SLOW_NS
"""A round time; a checkpoint is due a tick before it."""


def frame_bytes(frame: Frame) -> list[bytes]:
    """All that a frame shows."""
    return [codec.encode(snapshot) for snapshot in frame.snapshots.values()]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute and a half with faults."""
    flags = ("--fault", "crash-storm@5", "--fault", "policy-collapse@20")
    size = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "95", "--rate", "4")
    return record(tmp_path_factory.mktemp("storm"), *size, *flags)


def test_a_seek_costs_by_the_distance_to_the_nearest_and_shows_the_same(cache: Path, storm: Path) -> None:
    """After one replay of the whole, by another one that has folded nothing yet; what follows is the same."""
    live = {frame.tick: frame_bytes(frame) for frame in open_recording(storm).frames()}
    assert list(cache.glob("*/*.fold"))

    for place in sorted(live)[::97]:
        player = Player(open_recording(storm))
        before = player.folded
        assert frame_bytes(player.seek(place)) == live[place]
        assert player.folded - before <= EVERY_NS // FAST_NS + 1
    last = max(live)
    player.seek(last - 40 * SLOW_NS)
    for tick in range(player.position + FAST_NS, last + 1, FAST_NS):
        assert frame_bytes(player.seek(tick)) == live[tick]


def test_a_seek_leaves_checkpoints_for_the_next_replay(cache: Path, storm: Path) -> None:
    """What was folded once on the way is not folded again."""
    assert not cache.exists()
    first = Player(open_recording(storm))
    first.seek(first.last)
    second = Player(open_recording(storm))
    second.seek(second.last)

    assert second.folded <= EVERY_NS // FAST_NS + 2 < first.folded


def test_a_fold_that_goes_on_over_a_restart_is_found_again(cache: Path, tmp_path: Path) -> None:
    """Each life's checkpoints are of the fold that took the lives before it."""
    folder = resumed_life(tmp_path / "otlp")
    live = {frame.tick: frame_bytes(frame) for frame in Recording(folder).frames()}
    for tick in list(live)[::13]:
        assert frame_bytes(Player(Recording(folder)).seek(tick)) == live[tick]
    assert list(cache.glob("*/*.fold"))


@pytest.mark.parametrize("change", ["values", "build", "baseline", "damaged", "no fold"])
def test_a_checkpoint_of_something_else_is_never_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Other numbers in as many bytes, another build, another baseline, damage: folded from the begin."""
    path = tmp_path / "a.json"
    otlpfiles.written(path, otlpfiles.lines(otlpfiles.metrics(s, 1.5) for s in range(1, 80)))
    assert len(list(Recording(path, otlp(path)).frames())) > 700
    files = list(cache.glob("*/*.fold"))
    assert len(files) == 3
    expected = 1.5
    recording = Recording(path, otlp(path))
    if change == "values":
        otlpfiles.written(path, otlpfiles.lines(otlpfiles.metrics(s, 2.5) for s in range(1, 80)))
        recording, expected = Recording(path, otlp(path)), 2.5
    elif change == "build":
        monkeypatch.setattr("overwatch.feeds.recording.build", lambda: "another")
    elif change == "baseline":
        recording.baseline = Baseline(name="other", unit="updates", rate=3.0)
    else:
        for file in files:
            file.write_bytes(b"damaged" if change == "damaged" else b"no fold")
    player = Player(recording)
    (shown,) = player.seek(player.last).snapshots.values()

    assert player.folded > 700
    assert shown.policy["return"].value == expected


def otlp(path: Path) -> Rebuilt:
    """A file as a source of batches."""
    return Rebuilt(str(path), [OtlpFile(StoredFile(path))])


def test_a_recording_that_grows_keeps_its_checkpoints(cache: Path, tmp_path: Path) -> None:
    """What comes later changes nothing of what was."""
    written = Written(tmp_path / "otlp")
    written.start()
    for second in range(1, 70):
        written.update(float(second))
    first = Player(Recording(tmp_path / "otlp"))
    first.seek(first.last)
    for second in range(70, 75):
        written.update(float(second))
    written.close()
    again = Player(Recording(tmp_path / "otlp"))
    again.seek(again.last)

    assert again.folded < 400 < first.folded
    assert cache.is_dir()


def test_what_cannot_be_written_only_costs_time(
    storm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is no folder, or turned off."""
    (tmp_path / "file").write_text("no folder")
    for value in (str(tmp_path / "file"), "off"):
        monkeypatch.setenv(VARIABLE, value)
        player = Player(open_recording(storm))
        assert player.seek(player.last).snapshots


def kept(folder: Path, most_bytes: int = 1 << 20) -> Lasting:
    """Checkpoints whose marks never change."""
    return Lasting(folder, lambda tick: f"{tick:032x}", LeftBehind(folder, Fold.load), most_bytes)


def test_beyond_the_budget_every_second_one_goes(tmp_path: Path) -> None:
    """The time between two doubles; those that are left are read as they were."""
    lasting = kept(tmp_path / "one", 500)
    ticks = [T + place * EVERY_NS - FAST_NS for place in range(64)]
    for tick in ticks:
        if lasting.is_due(tick):
            lasting.keep(tick, tick.to_bytes(8, "big") * 4)

    left = [tick for tick in ticks if lasting.nearest(tick + 1, tick) == tick]
    assert 8 <= len(left) < 64
    assert all(lasting.read(tick) == tick.to_bytes(8, "big") * 4 for tick in left)
    assert sum(file.stat().st_size for file in (tmp_path / "one").iterdir()) <= 500
    assert kept(tmp_path / "one").nearest(ticks[-1] + 1, 0) == left[-1]


def test_recordings_used_longest_ago_are_let_go_of(tmp_path: Path) -> None:
    """So many are kept."""
    for number in range(MOST_RECORDINGS + 4):
        kept(tmp_path / f"{number}").keep(T - FAST_NS, b"fold")

    assert len(list(tmp_path.iterdir())) == MOST_RECORDINGS


def test_a_recording_is_found_by_its_path(tmp_path: Path) -> None:
    """Each has a folder of its own; a cache that is turned off has none."""
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = cache_folder(tmp_path / "a", env), cache_folder(tmp_path / "b", env)

    assert first is not None
    assert first.parent == tmp_path / "overwatch" / "replay"
    assert first != second
    assert cache_folder(tmp_path / "a", {VARIABLE: "off"}) is None
    assert len(build()) == 32


def test_how_much_is_done_is_reported_meanwhile(cache: Path, storm: Path) -> None:
    """Of a whole replay and of a long seek: rising parts of the way."""
    assert not cache.exists()
    for work in (lambda one: Player(one).seek(1 << 62), lambda one: list(one.recorded())):
        recording, parts = open_recording(storm), list[float]()
        recording.advanced = parts.append
        work(recording)
        assert len(parts) > 20
        assert parts == sorted(parts)
        assert 0.0 <= parts[0] < 0.5 < parts[-1] < 1.0


LEFT_EVERY_NS = 5 * SLOW_NS


@pytest.fixture(autouse=True, scope="module")
def often() -> Iterator[None]:
    """One each five seconds, and nothing that an earlier replay left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EVERY_NS", LEFT_EVERY_NS)
        patch.setenv(VARIABLE, "off")
        yield


@pytest.fixture(scope="module")
def minute(often: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `recorded` makes; to be copied by a test that changes it."""
    folder = tmp_path_factory.mktemp("minute")
    recorded(folder)
    return folder


def recorded(folder: Path, pieces: int = 3) -> Recorder:
    """A minute of a run, in pieces, with a crash, and the checkpoints that a collector would leave."""
    recorder = Recorder(folder, Rules(thins=False), first=1)
    start = Batch(sequence=1, stamp=START_NS + 1, signal=Signal.START, body=b"{}")
    recorder.writer.start(start)
    recorder.emit(0, [fakes.started(START_NS)])
    for number in range(pieces):
        recorder.steps(20 * number + 0.1, 20 * number + 19.9, hz=4)
        recorder.emit(20 * number + 19.95, [fakes.crashed(START_NS + (20 * number + 19) * SECOND, number)])
        recorder.writer.rotate()
    recorder.steps(20 * pieces, 20 * pieces + 5, hz=4)
    leave(folder, recorder)
    return recorder


def leave(folder: Path, recorder: Recorder) -> None:
    """Fold as a collector does, whose fold takes the start record too, and leave its checkpoints."""
    fold, position = Fold(), 1
    leaving = Leaving(folder, 1 << 40)
    stamp = next(iter(Recording(folder).batches())).stamp
    batches = [Batch(sequence=1, stamp=stamp, signal=Signal.START, body=b"{}")]
    for _, tick, more in Recording(folder).ticks():
        batches += more
        fold.take(tick, batches)
        position, batches = max([position, *(batch.sequence + 1 for batch in batches)]), []
        tower = fold.tower
        leaving.take(
            Checkpoint(
                tick=tick, position=position, batches=tower.batches, ticks=tower.ticks, fold=fold.dump()
            )
        )
    assert position == recorder.sequence + 1


def end_of(folder: Path) -> tuple[int, list[bytes], int]:
    """The last tick, what a replay that passes every tick shows there, and how many ticks there are."""
    fold, tick, count = Fold(), 0, 0
    recording = Recording(folder)
    for fold, tick, batches in recording.ticks():
        fold.take(tick, batches, recording.notes.muted(tick))
        count += 1
    return tick, shown_of(fold), count


def shown_of(fold: Fold) -> list[bytes]:
    """What is shown of every run."""
    return [codec.encode(one) for one in fold.look([(None, View())]).values()]


def straight(folder: Path) -> dict[int, list[bytes]]:
    """What a replay shows that passes every tick."""
    recording, shown = Recording(folder), {}
    for fold, tick, batches in recording.ticks():
        fold.take(tick, batches, recording.notes.muted(tick))
        shown[tick] = shown_of(fold)
    return shown


def sought(recording: Recording, tick: int) -> tuple[list[bytes], int]:
    """What a replay that begins with it shows at a tick, and how many it folded for that."""
    player = Player(recording)
    before = player.folded
    player.seek(tick)
    shown = player.look(None, View())
    return [] if shown is None else [codec.encode(shown)], player.folded - before


def check(folder: Path, shown: dict[int, list[bytes]]) -> None:
    """A seek shows what a straight replay does, and costs by the distance to the nearest."""
    ticks = sorted(shown)
    lefts = [left.tick for left in left_in(folder)]
    for tick in (*ticks[::41], ticks[-1]):
        seen, folded = sought(Recording(folder), tick)
        assert seen == shown[tick]
        assert folded <= (tick - max((at for at in lefts if at < tick), default=ticks[0])) // FAST_NS + 1


def test_a_seek_in_a_whole_recording_costs_by_the_distance_and_shows_the_same(tmp_path: Path) -> None:
    """As a replay does which finds none."""
    recorded(tmp_path)
    shown = straight(tmp_path)
    assert len(left_in(tmp_path)) == 13
    check(tmp_path, shown)
    (tmp_path / FOLDER).rename(tmp_path.parent / f"{tmp_path.name}-moved")
    assert straight(tmp_path) == shown


@pytest.mark.parametrize(
    "change", ["build", "began", "position", "ticks", "tick", "damaged", "no fold", "cut"]
)
def test_one_that_does_not_fit_is_never_used(minute: Path, tmp_path: Path, change: str) -> None:
    """Of another build, of other batches, of other ticks, damaged: folded from the begin."""
    shutil.copytree(minute, tmp_path, dirs_exist_ok=True)
    last, shown, count = end_of(tmp_path)
    for left in left_in(tmp_path):
        path = tmp_path / FOLDER / left.name
        data = path.read_bytes()
        path.unlink()
        (tmp_path / FOLDER / other(left, change).name).write_bytes(
            {"damaged": b"damaged", "no fold": zstandard.compress(b"no fold"), "cut": data[:-9]}.get(
                change, data
            )
        )
    seen, folded = sought(Recording(tmp_path), last)

    assert seen == shown
    assert folded >= count - 2


def other(left: Left, change: str) -> Left:
    """The name of another one."""
    match change:
        case "build":
            return replace(left, build="0" * 32)
        case "began" | "position" | "ticks":
            return replace(left, **{change: getattr(left, change) + 1})
        case "tick":
            return replace(left, tick=left.tick + SLOW_NS)
        case _:
            return left


def test_none_fits_where_a_batch_is_missing_before_it(tmp_path: Path) -> None:
    """A line of the index that cannot be read: from there on the fold is another."""
    recorder = recorded(tmp_path)
    (piece, *_) = sorted(tmp_path.glob("index-*"))
    lines = piece.read_bytes().splitlines(keepends=True)
    piece.write_bytes(b"".join([*lines[:10], b"{nothing}\n", *lines[11:]]))
    last, shown, _ = end_of(tmp_path)
    seen, folded = sought(Recording(tmp_path), last)

    assert recorder.sequence > 100
    assert seen == shown
    assert folded > 600


def test_none_fits_another_baseline(minute: Path) -> None:
    """Throughput was compared with something else when they were left."""
    recording = Recording(minute)
    recording.baseline = Baseline(name="other", unit="updates", rate=3.0)
    assert sought(recording, 1 << 62)[1] > 600


def test_in_a_thinned_recording_every_way_goes_on_from_what_was_left(tmp_path: Path) -> None:
    """Straight or by a seek; at the tick after one it shows what was live."""
    recorder = recorded(tmp_path)
    live = straight(tmp_path)
    recorder.tidy(now=recorder.newest + 3600 * SECOND, rules=Rules(whole_minutes=0.1, second_hours=0.1))
    shown = straight(tmp_path)
    recording = Recording(tmp_path)
    recording.segments()

    assert recording.notes.thinned
    assert shown.keys() == live.keys()
    check(tmp_path, shown)
    whole = max(shown)
    assert shown[whole] == live[whole]


def test_what_was_left_goes_with_the_part_of_the_recording_that_it_belongs_to(tmp_path: Path) -> None:
    """The rest is sought from, although nothing before the first of them can be folded."""
    recorder = recorded(tmp_path)
    live = straight(tmp_path)
    before = left_in(tmp_path)
    recorder.tidy(rules=Rules(thins=False, whole_minutes=0.1, run_mib=0.006))
    after = left_in(tmp_path)
    recording = Recording(tmp_path)
    recording.segments()
    gone = max(one.last for one in recording.notes.gone)

    assert after == [left for left in before if left.tick > gone]
    assert 0 < len(after) < len(before)
    shown = straight(tmp_path)
    check(tmp_path, shown)
    assert shown[max(shown)] == live[max(shown)]


def test_a_recording_that_is_thinned_and_grows_stays_at_the_same_frames(tmp_path: Path) -> None:
    """What was folded before a checkpoint was seen is not folded anew from it."""
    recorder = recorded(tmp_path)
    recorder.tidy(now=recorder.newest + 3600 * SECOND, rules=Rules(whole_minutes=0.1, second_hours=0.1))
    *_, newest = left_in(tmp_path)
    hidden = tmp_path / "hidden"
    (tmp_path / FOLDER / newest.name).rename(hidden)
    player = Player(Recording(tmp_path))
    player.seek(player.last)
    place, shown = player.position, player.look(None, View())
    hidden.rename(tmp_path / FOLDER / newest.name)
    recorder.steps(65, 66, hz=4)

    assert player.refresh()
    player.seek(place - SLOW_NS)
    player.seek(place)
    assert player.look(None, View()) == shown
