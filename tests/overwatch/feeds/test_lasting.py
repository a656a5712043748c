"""Checkpoints that outlive a replay: near places, the same frames, and nothing believed that changed."""

from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.lasting import EVERY_NS, MOST_RECORDINGS, VARIABLE, Lasting, cache_folder
from overwatch.feeds.loose import OtlpFile, Rebuilt
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording, open_recording
from overwatch.fold import FAST_NS, SLOW_NS, Frame
from overwatch.recordings.checkpoints import build
from overwatch.recordings.stored import StoredFile
from overwatch.snapshot import Baseline
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import Written, resumed_life
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
    return Lasting(folder, lambda tick: f"{tick:032x}", most_bytes)


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


def test_how_much_is_done_is_told_meanwhile(cache: Path, storm: Path) -> None:
    """Of a whole replay and of a long seek: rising parts of the way."""
    assert not cache.exists()
    for work in (lambda one: Player(one).seek(1 << 62), lambda one: list(one.recorded())):
        recording, parts = open_recording(storm), list[float]()
        recording.advanced = parts.append
        work(recording)
        assert len(parts) > 20
        assert parts == sorted(parts)
        assert 0.0 <= parts[0] < 0.5 < parts[-1] < 1.0
