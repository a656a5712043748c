"""A recording as a feed: it plays, pauses, steps and seeks, and shows the view that is asked for."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from overwatch.cli import simulate
from overwatch.feeds.live import Connection, Update
from overwatch.feeds.player import Cancelled, Player
from overwatch.feeds.recording import open_recording
from overwatch.feeds.replay import Replay
from overwatch.simulate import Settings, parse_fault
from overwatch.snapshot import Snapshot, View

DEADLINE_S = 30.0
Steps = Callable[[Replay, AsyncGenerator[Update, None]], Awaitable[None]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of a small run in which envs crash."""
    out = tmp_path_factory.mktemp("recording")
    faults = (parse_fault("crash-storm@4"),)
    simulate.record(Settings(gpus=1, envs=6, slots=2, seconds=12, faults=faults, run_id="sim"), out)
    return out


def _run(folder: Path, steps: Steps) -> None:
    async def session() -> None:
        replay = Replay(Player(open_recording(folder)))
        async with asyncio.timeout(DEADLINE_S), aclosing(replay.updates()) as updates:
            await steps(replay, updates)

    asyncio.run(session())


async def _next(updates: AsyncGenerator[Update, None]) -> Snapshot:
    while not isinstance(update := await anext(updates), Snapshot):
        continue
    return update


def test_it_begins_paused_and_steps(folder: Path) -> None:
    """A step is a recorded second; the same place is the same snapshot, however it was reached."""

    async def steps(replay: Replay, updates: AsyncGenerator[Update, None]) -> None:
        replay.seek(replay.span[0] + 3.0)
        first = await _next(updates)
        assert not replay.playing
        replay.step(2)
        await _next(updates)
        replay.step(-2)
        assert (await _next(updates)).time == pytest.approx(first.time, abs=1.0)
        replay.seek(first.time)
        assert await _next(updates) == first

    _run(folder, steps)


def test_it_plays_to_the_end_and_pauses_there(folder: Path) -> None:
    """Time goes by as often as the speed states; the alarms on the way are kept."""

    async def steps(replay: Replay, updates: AsyncGenerator[Update, None]) -> None:
        replay.set_speed(64.0)
        replay.play(playing=True)
        while replay.playing:
            last = await anext(updates)
        assert isinstance(last, Snapshot)
        assert last.time == pytest.approx(replay.span[1], abs=0.11)
        assert any(mark.severity == "critical" for mark in replay.marks)

    _run(folder, steps)


def test_a_view_is_shown_of_the_place_where_it_stands(folder: Path) -> None:
    """Without moving: another order, a filter, a detail."""

    async def steps(replay: Replay, updates: AsyncGenerator[Update, None]) -> None:
        replay.seek(replay.span[0] + 8.0)
        before = await _next(updates)
        replay.select(View(filter="status=crashed", env_id=3))
        after = await _next(updates)
        assert after.time == before.time
        assert {env.status for env in after.envs} == {"crashed"}
        assert after.detail is not None
        assert after.detail.env_id == 3

    _run(folder, steps)


def test_a_speed_that_does_not_play_is_refused(folder: Path) -> None:
    """With the value."""
    replay = Replay(Player(open_recording(folder)))

    with pytest.raises(ValueError, match=r"speed 0 does not play; use 0\.1 to 1000"):
        replay.set_speed(0)


def test_a_search_looks_through_what_was_not_seen_yet(folder: Path) -> None:
    """The last update is found though nothing has passed there, and what is nowhere is reported."""

    async def steps(replay: Replay, updates: AsyncGenerator[Update, None]) -> None:
        replay.search("update", "10")
        found = await _next(updates)
        assert found.run.update == 10
        replay.search("finding", "no-such-code")
        await _next(updates)
        answer = await anext(updates)
        assert isinstance(answer, Connection)
        assert answer.reason == "finding no-such-code is not in this recording from here"
        assert replay.time == found.time

    _run(folder, steps)


@pytest.mark.parametrize("way", ["seek", "search"])
def test_what_is_cancelled_on_its_way_leaves_the_place_as_it_was(folder: Path, way: str) -> None:
    """The snapshot is the one from before, and the next seek goes where it is asked to."""

    async def steps(replay: Replay, updates: AsyncGenerator[Update, None]) -> None:
        replay.seek(replay.span[0] + 3.0)
        before = await _next(updates)
        if way == "seek":
            replay.seek(replay.span[1])
        else:
            replay.search("update", "12")
        replay.cancel()
        assert await _next(updates) == before
        assert not replay.busy
        replay.seek(replay.span[1])
        assert (await _next(updates)).time == replay.span[1]

    _run(folder, steps)


def test_a_seek_is_cancelled_while_it_folds(folder: Path) -> None:
    """What is called with the part that is done can end it; what was shown is shown again."""
    player = Player(open_recording(folder))
    player.seek(player.first + 3 * 10**9)
    before = player.look("sim", View())

    def advanced(part: float) -> None:
        if part > 0.3:
            player.recording.advanced = lambda _: None
            raise Cancelled

    player.recording.advanced = advanced
    with pytest.raises(Cancelled):
        player.seek(player.last)

    assert player.look("sim", View()) == before
    player.seek(player.last)
    assert player.position == player.last
