"""Looking through a recording: alarms, updates and events by time, every place near, and what grows."""

from pathlib import Path

import pytest

from overwatch import codec
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import LogPlayer, Player, player_of
from overwatch.feeds.recording import Recording
from overwatch.feeds.survey import Mark, Survey
from overwatch.fold import SLOW_NS
from overwatch.recordings.index import Raised
from overwatch.snapshot import View
from overwatch.tui.playback import Playback, next_mark
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import Written, resumed_life, second_of, two_lives


def _surveyed(player: Player) -> Player:
    while player.look_ahead(37):
        continue
    return player


def test_after_looking_ahead_every_place_is_near(tmp_path: Path) -> None:
    """No jump folds more than lies between two checkpoints, and the frame is that of straight play."""
    folder = resumed_life(tmp_path)
    live = {
        frame.tick: codec.encode(next(iter(frame.snapshots.values()))) for frame in Recording(folder).frames()
    }
    player = _surveyed(Player(Recording(folder), checkpoint_ns=SLOW_NS, recent=0))
    for tick in list(live)[::7]:
        before = player.folded
        assert codec.encode(next(iter(player.seek(tick).snapshots.values()))) == live[tick]
        assert player.folded - before <= 10


def test_looking_ahead_does_not_move_the_place(tmp_path: Path) -> None:
    """What is shown stays; it ends, and a second time there is nothing to do."""
    player = Player(Recording(two_lives(tmp_path)))
    player.seek(player.first + 3 * SLOW_NS)
    shown = player.look(None, View())
    _surveyed(player)

    assert second_of(player.position) == 3.1
    assert player.look(None, View()) == shown
    assert not player.look_ahead(1)


def test_an_update_is_found_by_its_number(tmp_path: Path) -> None:
    """The first snapshot with it, or with the next that was seen; beyond the last there is none."""
    player = _surveyed(Player(Recording(two_lives(tmp_path))))
    find = player.survey.update

    assert find("other", 1) is None
    shown = player.seek(int((find(fakes.ORIGIN.run_id, 40) or 0) * 1e9))
    assert (next(iter(shown.snapshots.values())).run.update or 0) >= 40
    assert find(fakes.ORIGIN.run_id, 10_000) is None


def test_events_and_findings_are_found_by_words_from_here_on_and_then_from_the_start(tmp_path: Path) -> None:
    """A line of the feed by all of its words; a finding by a part of its code."""
    path = otlpfiles.written(
        tmp_path / "a.json",
        otlpfiles.lines([otlpfiles.logs(1), otlpfiles.logs(4, "worker 7 died"), otlpfiles.logs(9)]),
    )
    player = _surveyed(Player(_recording(path)))
    died = otlpfiles.START_S + 4.0

    assert player.survey.event(otlpfiles.RUN, "died WORKER", 0.0) == died
    assert player.survey.event(otlpfiles.RUN, "died", died + 1) == died
    assert player.survey.event(otlpfiles.RUN, "lived", 0.0) is None
    survey = Survey()
    survey.raised([_raised("kl.high", 5.0), _raised("stall:env3", 9.0), _raised("kl.high", 20.0)])
    assert survey.finding("run", "KL", 5.0) == 20.0
    assert survey.finding("run", "kl", 20.0) == 5.0
    early = Mark(time=3.0, severity="critical", seen=4.5)
    playback = Playback(time=3.2, first=0.0, last=9.0, playing=False, marks=(early,))
    assert next_mark(playback, 1) == 4.5
    assert [mark.severity for mark in survey.marks("run")] == ["warning"] * 3


def _recording(path: Path) -> Recording:
    opened = open_input(path)
    assert isinstance(opened, Recording)
    return opened


def _raised(finding: str, second: float) -> Raised:
    at = int(second * SLOW_NS)
    return Raised(finding=finding, run="run", tick=at, since=at, severity="warning")


def test_a_recording_that_grows_is_followed(tmp_path: Path) -> None:
    """What is added is there after a refresh; what was kept stays good."""
    written = Written(tmp_path)
    written.start()
    for tenth in range(0, 40, 2):
        written.update(tenth / 10)
    player = _surveyed(Player(Recording(tmp_path)))
    player.seek(player.last)
    assert not player.refresh()
    for tenth in range(40, 80, 2):
        written.update(tenth / 10)
    before = player.folded

    assert player.refresh()
    assert second_of(player.last) == 7.9
    player.seek(player.first + 7 * SLOW_NS)
    assert player.folded - before <= 40
    written.close()
    assert codec.encode(player.look(None, View()) or pytest.fail("no run")) == codec.encode(
        next(
            iter(
                next(f for f in Recording(tmp_path).frames() if f.tick == player.position).snapshots.values()
            )
        )
    )


def test_while_more_may_come_playing_does_not_end_at_the_end(tmp_path: Path) -> None:
    """It waits there, and goes on with what comes."""
    written = Written(tmp_path)
    written.start()
    written.update(0.5)
    player = Player(Recording(tmp_path))
    player.paused, player.follows = False, True
    player.advance(60 * SLOW_NS)
    assert (second_of(player.position), player.paused) == (0.6, False)
    written.update(1.5)
    player.refresh()
    player.advance(SLOW_NS)
    assert second_of(player.position) == 1.6
    player.follows = False
    player.advance(60 * SLOW_NS)
    assert player.paused
    written.close()


def test_a_file_of_another_exporter_that_grows_is_put_in_order_anew(tmp_path: Path) -> None:
    """A batch that belongs before what was shown changes what is shown, as in a replay of all."""
    told = [otlpfiles.metrics(second, reward=second) for second in (1, 2, 5, 6)]
    path = otlpfiles.written(tmp_path / "a.json", otlpfiles.lines(told))
    player = _surveyed(Player(_recording(path)))
    player.seek(player.last)
    with path.open("ab") as file:
        file.write(otlpfiles.lines([otlpfiles.metrics(3, reward=100.0), otlpfiles.logs(7)]))
    assert player.refresh()
    player.seek(player.last)

    *_, last = _recording(path).frames()
    assert {k: codec.encode(s) for k, s in player.frame.snapshots.items()} == {
        k: codec.encode(s) for k, s in last.snapshots.items()
    }


def test_a_log_of_snapshots_plays_like_a_recording(tmp_path: Path) -> None:
    """Steps, seeks and gaps; at each tick what was logged last."""
    lines = [codec.encode(snapshot) for snapshot in Recording(two_lives(tmp_path / "otlp")).recorded()]
    path = otlpfiles.written(tmp_path / "snapshots.jsonl", b"\n".join(lines))
    player = player_of(open_input(path))
    assert isinstance(player, LogPlayer)
    there = [second_of(player.step().tick) for _ in range(3)]
    player.seek(player.last)

    assert there == [2, 3, 4]
    assert codec.encode(player.look(None, View()) or pytest.fail("no run")) == lines[-1]
    assert player.look("other", View()) is None
    while player.look_ahead(1):
        continue
    assert player.survey.update(fakes.ORIGIN.run_id, 40) is not None


@pytest.mark.parametrize("speed", [0.0, 0.09, 1001.0, float("nan"), -1.0])
def test_a_speed_beyond_the_limits_is_refused(tmp_path: Path, speed: float) -> None:
    """With the value and the limits."""
    player = Player(Recording(two_lives(tmp_path)))

    with pytest.raises(ValueError, match=r"does not play; use 0\.1 to 1000"):
        player.speed = speed


def test_one_move_of_fast_play_is_bounded(tmp_path: Path) -> None:
    """No more ticks than allowed are folded, and it comes to the end all the same."""
    player = Player(Recording(two_lives(tmp_path)), recent=0)
    player.paused, player.speed = False, 1000.0
    moves = 0
    while not player.paused:
        before = player.folded
        player.advance(SLOW_NS, most_ticks=25)
        assert player.folded - before <= 26
        moves += 1

    assert moves >= 5
    assert player.position == player.last


def test_start_of_the_clock_is_that_of_the_recording(tmp_path: Path) -> None:
    """The first tick at or after the first stamp."""
    assert Player(Recording(two_lives(tmp_path))).first >= START_NS
