"""One recording for many readers: the moments that a player shows, at the end and before; none starves."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from overwatch.cli import simulate
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import AnyPlayer, Player, player_of
from overwatch.feeds.recording import Recording, RecordingError
from overwatch.feeds.shared import MOST_VIEWS, MOST_WAITING, BusyError, SharedReplay
from overwatch.fold import Frame
from overwatch.simulate import Settings, parse_fault
from overwatch.snapshot import View
from overwatch.snapshot.heat import HeatQuery
from overwatch.snapshot.history import HistoryQuery
from tests.fakes import SECOND, START_NS
from tests.overwatch.feeds.recordings import Written, two_lives

RUN = "sim"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of a small run in which envs crash."""
    out = tmp_path_factory.mktemp("recording")
    faults = (parse_fault("crash-storm@4"),)
    simulate.record(Settings(gpus=1, envs=6, slots=2, seconds=12, faults=faults, run_id=RUN), out)
    return out


@contextmanager
def shared(path: Path) -> Iterator[tuple[SharedReplay, "SimpleQueue[Frame]"]]:
    """A recording that stands at its end, and its frames as they come."""
    frames: SimpleQueue[Frame] = SimpleQueue()
    replay = SharedReplay(lambda: player_of(open_input(path)), frames.put)
    replay.start()
    try:
        yield replay, frames
    finally:
        replay.stop()


def test_the_end_is_shown_and_then_every_view_of_it(folder: Path) -> None:
    """The first frame is a player's last one; what is watched is added, the others stay as they are."""
    player = player_of(open_input(folder))
    wanted, view = player.seek(player.last), View(rows=2, sort="id", descending=False)
    with shared(folder) as (replay, frames):
        first = frames.get(timeout=WAIT_S)
        replay.watch(None, view)
        then = frames.get(timeout=WAIT_S)

    assert first.snapshots == wanted.snapshots
    assert then.snapshots[RUN, view] == player.look(RUN, view)
    assert then.snapshots[RUN, View()] is first.snapshots[RUN, View()]


def test_every_second_of_the_past_is_what_a_player_shows(folder: Path) -> None:
    """In whatever order it is requested, for snapshots, histories and envs over time, by readers at once."""
    player = player_of(open_input(folder))
    seconds = [9, 2, 7, 7, 1, 11, 4]
    with shared(folder) as (replay, _):
        begin = player.first / SECOND
        found = [
            (
                replay.snapshot(RUN, View(), begin + second),
                replay.history(RUN, HistoryQuery(), begin + second),
                replay.heat(RUN, HeatQuery(), begin + second),
            )
            for second in seconds
        ]
        for second, (snapshot, history, heat) in zip(seconds, found, strict=True):
            player.seek(player.first + second * SECOND)
            assert snapshot.result(WAIT_S) == player.look(RUN, View())
            assert history.result(WAIT_S) == player.history(RUN, HistoryQuery())
            assert heat.result(WAIT_S) == player.heat(RUN, HeatQuery())


def test_after_the_end_is_the_end_and_before_a_run_is_none(folder: Path) -> None:
    """Of a run that there never was there is nothing either."""
    with shared(folder) as (replay, frames):
        last = frames.get(timeout=WAIT_S)
        assert replay.snapshot(RUN, View(), 9e9).result(WAIT_S) == last.snapshots[RUN, View()]
        assert replay.snapshot(RUN, View(), 1.0).result(WAIT_S) is None
        assert replay.snapshot("other", View(), 9e9).result(WAIT_S) is None
        assert replay.timeline("other").result(WAIT_S) is None


def test_the_timeline_has_the_alarms_of_before_too(folder: Path) -> None:
    """All that a survey finds, with where each can be seen, and what it is about."""
    player = player_of(open_input(folder))
    while player.look_ahead(10):
        pass
    with shared(folder) as (replay, _):
        while replay.read < 1.0:
            replay.timeline(RUN).result(WAIT_S)
        line = replay.timeline(None).result(WAIT_S)
        assert line is not None
        first = line.marks[0]
        shown = replay.snapshot(RUN, View(), first.place).result(WAIT_S)

    known = player.survey.marks(RUN)
    assert [(mark.place, mark.since, mark.severity) for mark in line.marks] == [
        (mark.place, mark.time, mark.severity) for mark in known
    ]
    assert (line.run_id, line.first, line.last) == (RUN, player.first / SECOND, player.last / SECOND)
    assert (line.live, line.past, line.read) == (False, True, 1.0)
    assert shown is not None
    assert (first.code, first.subject, first.message) in {
        (one.code, f"{one.subject.scope} {one.subject.id}", one.message) for one in shown.findings
    }


def test_a_growing_recording_is_followed(tmp_path: Path) -> None:
    """What is added is at the end soon, and its moments can be requested."""
    written = Written(tmp_path)
    written.start()
    for tenth in range(0, 40, 2):
        written.update(tenth / 10)
    with shared(tmp_path) as (replay, frames):
        first = frames.get(timeout=WAIT_S)
        for tenth in range(40, 60, 2):
            written.update(tenth / 10)
        written.end(6.0)
        then = frames.get(timeout=WAIT_S)
        while then.tick < START_NS + 6 * SECOND:
            then = frames.get(timeout=WAIT_S)
        between = replay.snapshot(None, View(), START_NS / SECOND + 5).result(WAIT_S)

    assert first.tick < START_NS + 5 * SECOND
    assert between is not None
    assert between.time == START_NS / SECOND + 5
    written.close()


def test_what_waits_for_a_far_moment_holds_up_no_one(tmp_path: Path) -> None:
    """A moment that is known is shown while the way to another one is still long."""
    folder = two_lives(tmp_path)
    slow, order = _Slow(Recording(folder)), list[str]()
    replay = SharedReplay(lambda: slow)
    far = replay.snapshot(None, View(), START_NS / SECOND + 33)
    far.add_done_callback(lambda _: order.append("far"))
    assert slow.looks.wait(WAIT_S)
    near = replay.snapshot(None, View(), START_NS / SECOND + 1)
    near.add_done_callback(lambda _: order.append("near"))
    near.result(WAIT_S)
    slow.goes_on.set()
    shown = far.result(WAIT_S)
    replay.stop()

    assert order == ["near", "far"]
    assert shown is not None
    assert shown.time == START_NS / SECOND + 33


class _Slow(Player):
    """A player whose far moments stay far until the test lets them come near."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.looks, self.goes_on = Event(), Event()

    def far(self, time: int) -> int:
        """As if it were hours away."""
        return super().far(time) if time < START_NS + 2 * SECOND or self.goes_on.is_set() else 1 << 20

    def look_ahead(self, ticks: int) -> bool:
        """Begins, and gets nowhere before it may."""
        self.looks.set()
        return super().look_ahead(ticks) if self.goes_on.is_set() else True


def test_a_reader_that_has_gone_is_passed_over(folder: Path) -> None:
    """Nothing is done for it."""
    opened, release = Event(), Event()

    def slowly() -> AnyPlayer:
        opened.set()
        release.wait(WAIT_S)
        return player_of(open_input(folder))

    replay = SharedReplay(slowly)
    gone = replay.snapshot(RUN, View(), 9e9)
    assert opened.wait(WAIT_S)
    assert gone.cancel()
    stays = replay.snapshot(RUN, View(), 9e9)
    release.set()
    assert stays.result(WAIT_S) is not None
    replay.stop()


def test_what_is_too_much_is_refused(folder: Path) -> None:
    """Requests that wait and views that are watched are bounded, with what to do."""
    release = Event()

    def slowly() -> AnyPlayer:
        release.wait(WAIT_S)
        return player_of(open_input(folder))

    replay = SharedReplay(slowly)
    waiting: list[Future[object]] = [replay.timeline(RUN) for _ in range(MOST_WAITING)]
    with pytest.raises(BusyError, match="try again"):
        replay.timeline(RUN)
    for rows in range(MOST_VIEWS):
        replay.watch(RUN, View(rows=rows))
    with pytest.raises(BusyError, match="use one that is open"):
        replay.watch(RUN, View(rows=MOST_VIEWS))
    replay.watch(RUN, View(rows=0))
    release.set()
    assert waiting[-1].result(WAIT_S) is not None
    replay.stop()


def test_what_cannot_be_opened_is_the_answer_and_is_tried_again(folder: Path) -> None:
    """Each request has the reason; once it can be opened the next one is answered."""
    places = [folder / "nothing", folder]
    replay = SharedReplay(lambda: player_of(open_input(places.pop(0))))
    with pytest.raises(RecordingError, match="is not there"):
        replay.snapshot(RUN, View(), 9e9).result(WAIT_S)
    assert replay.failure is not None
    assert replay.snapshot(RUN, View(), 9e9).result(WAIT_S) is not None
    replay.stop()


def test_without_requests_the_recording_is_let_go_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened again by the next one."""
    monkeypatch.setattr("overwatch.feeds.shared.IDLE_S", 0.001)
    opened: list[AnyPlayer] = []

    def again() -> AnyPlayer:
        opened.append(player_of(open_input(folder)))
        return opened[-1]

    replay, until = SharedReplay(again), time.monotonic() + WAIT_S
    while len(opened) < 3 and time.monotonic() < until:
        assert replay.snapshot(RUN, View(), 9e9).result(WAIT_S) is not None
        time.sleep(0.01)  # nothing is requested for longer than it stays open
    replay.stop()

    assert len(opened) > 2


def test_a_log_of_snapshots_has_its_whole_past(folder: Path) -> None:
    """A history waits until what is before its moment was looked through."""
    player = player_of(open_input(folder / "snapshots.jsonl"))
    while player.look_ahead(10):
        pass
    player.seek(player.first + 9 * SECOND)
    with shared(folder / "snapshots.jsonl") as (replay, _):
        begin = player.first / SECOND
        assert replay.history(RUN, HistoryQuery(), begin + 9).result(WAIT_S) == player.history(
            RUN, HistoryQuery()
        )


def test_to_stop_ends_a_long_way_and_who_waits(tmp_path: Path) -> None:
    """No request is left without an end."""
    slow = _Slow(Recording(two_lives(tmp_path)))
    replay = SharedReplay(lambda: slow)
    far = replay.snapshot(None, View(), 9e9)
    assert slow.looks.wait(WAIT_S)
    replay.stop()

    assert far.cancelled()
