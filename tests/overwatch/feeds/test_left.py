"""Checkpoints that lie beside a recording: near places where they fit, and the same frames in every way."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from overwatch import codec
from overwatch.aggregator import Checkpoint
from overwatch.feeds.lasting import VARIABLE
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.fold import FAST_NS, SLOW_NS, Fold
from overwatch.journal import Batch, Signal
from overwatch.recordings import checkpoints as module
from overwatch.recordings.checkpoints import FOLDER, Leaving, Left, left_in
from overwatch.recordings.plan import Rules
from overwatch.snapshot import Baseline, View
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.recordings.folders import Recorder

EVERY_NS = 5 * SLOW_NS


@pytest.fixture(autouse=True, scope="module")
def often() -> Iterator[None]:
    """One each five seconds, and nothing that an earlier replay left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EVERY_NS", EVERY_NS)
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
    recorder.say(0, [fakes.started(START_NS)])
    for number in range(pieces):
        recorder.steps(20 * number + 0.1, 20 * number + 19.9, hz=4)
        recorder.say(20 * number + 19.95, [fakes.crashed(START_NS + (20 * number + 19) * SECOND, number)])
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
        fold.take(tick, batches, recording.notes.hushed(tick))
        count += 1
    return tick, shown_of(fold), count


def shown_of(fold: Fold) -> list[bytes]:
    """What is shown of every run."""
    return [codec.encode(one) for one in fold.look([(None, View())]).values()]


def straight(folder: Path) -> dict[int, list[bytes]]:
    """What a replay shows that passes every tick."""
    recording, shown = Recording(folder), {}
    for fold, tick, batches in recording.ticks():
        fold.take(tick, batches, recording.notes.hushed(tick))
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
