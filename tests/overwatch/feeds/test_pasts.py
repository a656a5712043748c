"""The past by every feed: of a collector, of a recording up to its place, of a log of snapshots."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web

from overwatch import codec
from overwatch.cli import simulate
from overwatch.feeds.inputs import open_input
from overwatch.feeds.logplayer import LogPlayer
from overwatch.feeds.player import Player
from overwatch.feeds.playing import player_of
from overwatch.feeds.recording import open_recording
from overwatch.feeds.replay import Replay
from overwatch.feeds.towers import Towers
from overwatch.fold import SLOW_NS
from overwatch.serve.stream import Bell, ViewApi
from overwatch.simulate import Settings
from overwatch.snapshot import View
from overwatch.snapshot.history import Ask, Curve, History
from tests import fakes
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.serve.framed import Frames
from tests.overwatch.serve.test_stream import HandDrivenTower


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seconds of a small run."""
    out = tmp_path_factory.mktemp("recording")
    simulate.record(Settings(gpus=1, envs=4, slots=2, seconds=12, run_id="sim"), out)
    return out


def _kl(found: History | None) -> Curve:
    assert found is not None
    return next(one for one in found.curves if one.name == "kl_divergence")


def test_a_recording_has_the_past_up_to_its_place(folder: Path) -> None:
    """However the place was reached: from the front, from behind, or on the way."""
    player = Player(open_recording(folder))
    asked = Ask()
    player.seek(player.last)
    whole = player.history("sim", asked)
    player.seek(player.first + 6 * SLOW_NS)
    part = player.history("sim", asked)
    again = Player(open_recording(folder))
    again.seek(again.first + 6 * SLOW_NS)

    assert again.history(None, asked) == part
    assert 0 < _kl(part).samples < _kl(whole).samples
    assert _kl(whole).high[: len(_kl(part).high)] == _kl(part).high
    assert player.history("other", asked) is None


def test_a_replay_answers_beside_its_snapshots(folder: Path) -> None:
    """The past of the place that is shown, and no word of it while nothing moves the recording."""

    async def session() -> None:
        replay = Replay(Player(open_recording(folder)))
        async with asyncio.timeout(30), aclosing(replay.updates()) as updates:
            replay.seek(replay.span[1])
            asking = asyncio.create_task(replay.history(None, Ask()))
            while not asking.done():
                await anext(updates)
            assert _kl(await asking).samples > 1

    asyncio.run(session())


def test_a_log_of_snapshots_has_the_past_of_its_readings(tmp_path: Path) -> None:
    """One sample an update, with what the newest snapshot judges; up to the place where it stands."""
    frames, lines = Frames(), list[bytes]()
    for update in range(30):
        event = fakes.policy(frames.now, update, kl_divergence=0.001 * update)
        frame = frames.tell("run-1", [event])
        for _ in range(2):
            lines.append(codec.encode(frame.snapshots["run-1", View()]))
            frame = frames.skip(5)
    player = player_of(open_input(otlpfiles.written(tmp_path / "snapshots.jsonl", b"\n".join(lines) + b"\n")))
    assert isinstance(player, LogPlayer)
    player.seek(player.first + 10 * SLOW_NS)
    shares = [player.known]
    while player.known < 1.0:
        assert player.look_ahead(1)  # what comes later is not needed here
        shares.append(player.known)
    assert shares[0] < 1.0
    assert shares == sorted(shares)
    player.seek(player.last)
    assert player.known < 1.0
    while player.look_ahead(1):
        continue
    assert player.known == 1.0
    whole = _kl(player.history("run-1", Ask()))
    player.seek(player.first + 10 * SLOW_NS)
    part = _kl(player.history(None, Ask()))

    assert whole.update == tuple(range(30))
    assert whole.high == pytest.approx(tuple(0.001 * update for update in range(30)))
    assert whole.limits
    assert 0 < len(part.update) < 30
    assert player.history("other", Ask()) is None


def test_the_past_of_a_collector_comes_over_http() -> None:
    """Named numbers and columns; a collector that has none to give is no error."""

    async def session() -> None:
        bell = Bell()
        tower = HandDrivenTower(bell)
        runner = web.AppRunner(ViewApi(tower, bell).app(), shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            for update in range(9):
                tower.update("run-1", update)
            towers = Towers([f"ws://{host}:{port}"])
            found = await towers.history(None, Ask(names=("kl_*",), columns=4, since=1.0, about=True))
            assert found is not None
            assert [one.name for one in found.curves] == ["kl_divergence"]
            assert len(found.curves[0].at) <= 4
            assert found.about is not None
            assert await towers.history("other", Ask()) is None
        finally:
            await runner.cleanup()
        assert await towers.history(None, Ask()) is None

    asyncio.run(session())
