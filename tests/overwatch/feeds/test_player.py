"""Playing a recording: every way to a tick gives the frame that was live, and stepping back is cheap."""

import random
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording, RecordingError, open_recording
from overwatch.fold import DEFAULT_VIEW, FAST_NS, SLOW_NS, Frame
from overwatch.snapshot import View
from overwatch.snapshot.heat import HeatQuery
from tests.overwatch.feeds.recordings import Written, resumed_life, second_of, two_lives
from tests.overwatch.simulate.runs import record


def _bytes(frame: Frame) -> dict[str, bytes]:
    """All of a frame that a view can show."""
    return {
        run: codec.encode(snapshot)
        for (run, view), snapshot in frame.snapshots.items()
        if view == DEFAULT_VIEW
    }


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Three quarters of a minute with crashes, culls, heat and a collapse."""
    faults = ("crash-storm@5", "cull-storm@10", "policy-collapse@20", "thermal-throttle@30")
    flags = [word for fault in faults for word in ("--fault", fault)]
    size = ("--gpus", "1", "--envs", "4", "--slots", "3", "--seconds", "45", "--rate", "4")
    return open_recording(record(tmp_path_factory.mktemp("storm"), *size, *flags))


@pytest.fixture(scope="module")
def live(storm: Recording) -> dict[int, dict[str, bytes]]:
    """The frames of straight play, by tick."""
    return {frame.tick: _bytes(frame) for frame in storm.frames()}


def test_any_jumps_show_what_was_live(storm: Recording, live: dict[int, dict[str, bytes]]) -> None:
    """Forward, back and far, on whole seconds and between them: the same bytes as in straight play."""
    chance = random.Random(5)  # noqa: S311 a test's own jumps
    player = Player(storm, checkpoint_ns=10 * SLOW_NS)
    for _ in range(25):
        tick = chance.choice(list(live))
        assert _bytes(player.seek(tick)) == live[tick]
        assert player.position == tick


def test_any_way_to_a_place_has_the_same_envs_and_lanes_over_time(storm: Recording) -> None:
    """Forward, back and far: the answers of straight play, up to that place and no further."""
    chance = random.Random(11)  # noqa: S311 a test's own jumps
    straight, jumping = Player(storm), Player(storm, checkpoint_ns=7 * SLOW_NS)
    queries = (HeatQuery(), HeatQuery(of="gpu"), HeatQuery(columns=9, sort="worst"))
    first = straight.first + 5 * SLOW_NS
    live = {}
    for tick in range(first, straight.last, 3 * SLOW_NS + FAST_NS):
        straight.seek(tick)
        live[tick] = [straight.heat(None, query) for query in queries]
    for tick in chance.sample(list(live), 10):
        jumping.seek(tick)
        assert [jumping.heat(None, query) for query in queries] == live[tick]

    newest = straight.heat(None, HeatQuery())
    assert newest is not None
    assert newest.since is not None
    assert newest.columns >= 43
    assert any("x" in row.cells for row in newest.rows)
    assert straight.heat("nobody", HeatQuery()) is None


def test_jumps_over_a_restart_show_what_was_live(tmp_path: Path) -> None:
    """A life that went on with the fold of the one before it is the same from wherever it is reached."""
    recording = Recording(resumed_life(tmp_path))
    live = {frame.tick: _bytes(frame) for frame in recording.frames()}
    chance = random.Random(7)  # noqa: S311 a test's own jumps
    player = Player(recording, checkpoint_ns=2 * SLOW_NS)
    for _ in range(25):
        tick = chance.choice(list(live))
        assert _bytes(player.seek(tick)) == live[tick]


def test_stepping_goes_by_whole_seconds_and_stays_at_the_ends(tmp_path: Path) -> None:
    """Forward over the gap between two lives, and back the same way."""
    player = Player(Recording(two_lives(tmp_path)))
    there = [second_of(player.step().tick) for _ in range(15)]
    back = [second_of(player.step(-1).tick) for _ in range(14)]

    assert there == [1, 2, 3, 4, 5, 6, 7, 8, 29, 30, 31, 32, 33, 33, 33]
    assert back == [32, 31, 30, 29, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]
    assert second_of(player.step(3).tick) == 4


def test_stepping_back_does_not_fold_from_the_start(storm: Recording) -> None:
    """From the end: ten steps back cost a tick each, a jump back at most one stretch between checkpoints."""
    player = Player(storm)
    player.seek(player.last)
    before = player.folded
    for _ in range(9):
        player.step(-1)
    stepped = player.folded - before
    player.seek(player.first + 34 * SLOW_NS)

    assert stepped == 9
    assert player.folded - before - stepped <= 50


def test_checkpoints_are_also_kept_while_playing(storm: Recording) -> None:
    """Who played tick by tick can step back as cheaply as who jumped."""
    player = Player(storm)
    player.paused = False
    while not player.paused:
        player.advance(FAST_NS)
    before = player.folded
    player.seek(player.first + 31 * SLOW_NS)

    assert player.folded - before <= 20


def test_memory_for_checkpoints_is_bounded(storm: Recording, live: dict[int, dict[str, bytes]]) -> None:
    """With no room for any the frames are the same, only dearer; with little room some are kept."""
    tick = sorted(live)[395]
    costs = []
    for most_bytes in (0, 100_000, 1 << 30):
        player = Player(storm, checkpoint_ns=2 * SLOW_NS, most_bytes=most_bytes, recent=0)
        player.seek(player.last)
        before = player.folded
        assert _bytes(player.seek(tick)) == live[tick]
        costs.append(player.folded - before)

    assert costs[0] > costs[1] > costs[2]


def test_a_time_in_a_gap_shows_what_was_known_then(tmp_path: Path) -> None:
    """Between two lives it is the last tick of the first; beyond the ends it is the end."""
    player = Player(Recording(two_lives(tmp_path)))

    assert second_of(player.seek(player.first + 15 * SLOW_NS).tick) == 8.0
    assert player.seek(player.last + SLOW_NS).tick == player.last
    assert player.seek(0).tick == player.first


def test_playing_leaves_gaps_out_and_pauses_at_the_end(tmp_path: Path) -> None:
    """Eight seconds and five, whatever lies between; then it stands."""
    player = Player(Recording(two_lives(tmp_path)))
    player.paused = False
    seen = []
    for _ in range(40):
        seen.append(second_of(player.advance(SLOW_NS // 2).tick))
        if player.paused:
            break

    assert len(seen) <= 29
    assert seen == sorted(seen)
    assert not [second for second in seen if 8 < second < 28.4]
    assert seen[-1] == 33.0


def test_a_pause_stands_still_and_goes_on_where_it_stood(tmp_path: Path) -> None:
    """Time that goes by while paused does not count; small pieces of time add up."""
    player = Player(Recording(two_lives(tmp_path)))
    assert player.advance(SLOW_NS).tick == player.first
    player.paused = False
    for _ in range(4):
        player.advance(FAST_NS // 4)
    assert player.position == player.first + FAST_NS
    player.paused = True
    assert player.advance(10 * SLOW_NS).tick == player.first + FAST_NS


def test_speed_is_recording_time_a_second(tmp_path: Path) -> None:
    """At four times the speed a second shows four."""
    player = Player(Recording(two_lives(tmp_path)))
    player.paused, player.speed = False, 4.0

    assert player.advance(SLOW_NS).tick == player.first + 4 * SLOW_NS


def test_another_view_of_the_same_tick(storm: Recording) -> None:
    """A reader's own cut needs no further folding, also right after a jump; an unknown run has none."""
    player = Player(storm)
    player.seek(player.first + 40 * SLOW_NS)
    before = player.folded
    few = player.look(None, View(rows=2))
    again = player.look(None, DEFAULT_VIEW)

    assert few is not None
    assert again is not None
    assert len(few.envs) == 2
    assert codec.encode(again) == next(iter(_bytes(player.frame).values()))
    assert player.look("no such run", View()) is None
    assert player.folded == before


def test_a_recording_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    """A start alone cannot be played."""
    written = Written(tmp_path)
    written.start()

    with pytest.raises(RecordingError, match="nothing that can be replayed"):
        Player(Recording(written.close()))


def test_a_batch_that_comes_for_the_last_tick_is_in_it(tmp_path: Path) -> None:
    """The index was read between two batches of one tick, before and after a finding in a silent run."""
    written = Written(tmp_path)
    written.start()
    written.update(1.02)
    player = Player(Recording(tmp_path))
    assert player.seek(player.last).snapshots["run-1", View()].run.update == 11
    written.update(1.06)
    assert player.refresh()
    assert player.last == player.position
    assert player.frame.tower.batches == 2

    written.raised(9.4)
    assert player.refresh()
    frame = player.seek(player.last)
    assert (second_of(frame.tick), frame.tower.batches) == (9.4, 2)
    *_, last = Recording(tmp_path).recorded()
    assert second_of(round(last.time * SLOW_NS)) == 9.4
    written.update(9.2)
    assert player.refresh()
    assert player.frame.tower.batches == 3
    assert [snapshot.run.update for snapshot in Recording(tmp_path).recorded()][-1] == 93
