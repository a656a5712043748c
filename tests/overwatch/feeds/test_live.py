"""The live feed against a real WebSocket server that comes, goes, and misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from overwatch import codec
from overwatch.cli import simulate
from overwatch.feeds.inputs import open_input
from overwatch.feeds.live import Connection, Live
from overwatch.feeds.player import LogPlayer, Player, player_of
from overwatch.feeds.recording import open_recording
from overwatch.feeds.replay import Replay
from overwatch.fold import SLOW_NS
from overwatch.serve.stream import FrameNotifier, ViewApi
from overwatch.simulate import Settings
from overwatch.snapshot import Link, Run, Snapshot, Verdict, View
from overwatch.snapshot.heat import HeatQuery
from overwatch.snapshot.history import Curve, History, HistoryQuery
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.feeds import otlpfiles
from tests.overwatch.feeds.recordings import Written
from tests.overwatch.serve.framed import Frames, busy_run
from tests.overwatch.serve.test_stream import HandDrivenTower

QUICK = (0.01, 0.05)
DEADLINE_S = 10


def _snapshot(update: int) -> Snapshot:
    return Snapshot(
        time=1.0,
        run=Run(run_id="r1", update=update),
        link=Link(state="live", data_age_s=0.1),
        verdict=Verdict(severity="ok", text="fine"),
    )


class Server:
    """A view API that sends what a test gives it."""

    def __init__(self, messages: list[bytes | str]) -> None:
        self.messages = messages
        self.queries: list[dict[str, str]] = []
        self.refuses: str | None = None
        """A parameter that this server does not take."""
        self.hold = True
        """Keep the socket open after the last message."""
        self.pause_s = 0.0
        """After each message."""

    async def stream(self, request: web.Request) -> web.WebSocketResponse:
        """One reader."""
        self.queries.append(dict(request.query))
        if self.refuses in request.query:
            raise web.HTTPBadRequest
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for message in self.messages:
            await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
            await asyncio.sleep(self.pause_s)
        if self.hold:
            async for _ in socket:
                continue
        return socket

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[int]:
        """Listen on `port`; yields the port."""
        app = web.Application()
        app.router.add_get("/api/v1/stream", self.stream)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


async def _until(
    live: Live, done: Callable[[list[Snapshot | Connection]], bool]
) -> list[Snapshot | Connection]:
    seen: list[Snapshot | Connection] = []
    async with asyncio.timeout(DEADLINE_S), aclosing(live.updates()) as updates:
        async for update in updates:
            seen.append(update)
            if done(seen):
                break
    return seen


def _snapshots(seen: list[Snapshot | Connection]) -> list[int | None]:
    return [update.run.update for update in seen if isinstance(update, Snapshot)]


def test_snapshots_arrive_as_they_were_sent() -> None:
    """Text and binary messages are the same; the query names run, rows and env."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1)), codec.encode(_snapshot(2)).decode()])
        async with server.running() as port:
            live = Live(f"ws://127.0.0.1:{port}", "r1", View(rows=64, env_id=9), waits_s=QUICK)
            seen = await _until(live, lambda got: len(_snapshots(got)) == 2)

        assert seen[0] == Connection(state="up")
        assert seen[1:] == [_snapshot(1), _snapshot(2)]
        assert server.queries == [{"run": "r1", "rows": "64", "env": "9"}]

    asyncio.run(scenario())


def test_it_reconnects_and_reports_it() -> None:
    """A collector that went away is called again until it is back, on the same address."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1))])
        server.hold = False
        async with server.running() as port:
            live = Live(f"http://127.0.0.1:{port}", waits_s=QUICK)
            seen: list[Snapshot | Connection] = []
            async with asyncio.timeout(DEADLINE_S), aclosing(live.updates()) as updates:
                async for update in updates:
                    seen.append(update)
                    if isinstance(update, Connection) and update.state == "down":
                        break
                server.messages, server.hold = [codec.encode(_snapshot(2))], True
                async for update in updates:
                    seen.append(update)
                    if isinstance(update, Snapshot):
                        break

        assert _snapshots(seen) == [1, 2]
        states = [update.state for update in seen if isinstance(update, Connection)]
        assert states == ["up", "down", "up"]

    asyncio.run(scenario())


def test_nobody_there_is_a_state_and_not_an_error() -> None:
    """A refused connection is tried again, with its reason at hand."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1))])
        async with server.running() as port:
            pass
        live = Live(f"ws://127.0.0.1:{port}", waits_s=QUICK)
        assert live.connection == Connection(state="connecting")
        assert live.age_s is None
        refused = await _until(live, lambda got: len(got) == 3)
        async with server.running(port):
            back = await _until(live, lambda got: bool(_snapshots(got)))

        assert [update.state for update in refused if isinstance(update, Connection)] == ["down"] * 3
        assert all(isinstance(update, Connection) and update.reason for update in refused)
        assert _snapshots(back) == [1]

    asyncio.run(scenario())


def test_a_message_that_is_no_snapshot_is_counted_and_passed_over() -> None:
    """Bad bytes end neither the stream nor the view."""

    async def scenario() -> None:
        server = Server(["{", b"\xff\xfe", '{"time": "x"}', codec.encode(_snapshot(3))])
        async with server.running() as port:
            live = Live(f"ws://127.0.0.1:{port}", waits_s=QUICK)
            seen = await _until(live, lambda got: bool(_snapshots(got)))

        assert _snapshots(seen) == [3]
        assert (live.received, live.unreadable) == (1, 3)

    asyncio.run(scenario())


def test_a_collector_of_another_major_version_is_named() -> None:
    """Schema skew is a reason to be down, in words."""

    async def scenario() -> None:
        newer = msgspec.structs.replace(_snapshot(1), schema_version="9.0")
        async with Server([codec.encode(newer)]).running() as port:
            live = Live(f"ws://127.0.0.1:{port}", waits_s=QUICK)
            seen = await _until(live, lambda got: len(got) == 2)

        last = seen[-1]
        assert isinstance(last, Connection)
        assert last.state == "down"
        assert "schema version 9.0" in (last.reason or "")

    asyncio.run(scenario())


def test_the_age_is_counted_here() -> None:
    """The age of the last snapshot grows on this machine's monotonic clock."""

    async def scenario() -> None:
        now = [100.0]
        async with Server([codec.encode(_snapshot(1))]).running() as port:
            live = Live(f"ws://127.0.0.1:{port}", waits_s=QUICK, clock=lambda: now[0])
            await _until(live, lambda got: bool(_snapshots(got)))
            now[0] = 114.0

        assert live.age_s == 14.0

    asyncio.run(scenario())


def test_another_view_is_asked_for_without_a_gap() -> None:
    """Selecting connects anew at once; the connection is never reported down."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1))])
        async with server.running() as port:
            live = Live(f"ws://127.0.0.1:{port}", "r1", View(rows=64), waits_s=QUICK)
            async with asyncio.timeout(DEADLINE_S), aclosing(live.updates()) as updates:
                seen = [await anext(updates), await anext(updates)]
                wanted = View(rows=64, env_id=3, sort="env", descending=False, filter="gpu=0", grouped=False)
                live.select(msgspec.structs.replace(wanted, offset=0))
                seen.append(await anext(updates))

        assert [update for update in seen if isinstance(update, Connection)] == [Connection(state="up")]
        assert len(_snapshots(seen)) == 2
        assert server.queries[0] == {"run": "r1", "rows": "64"}
        assert server.queries[1] == {
            "run": "r1", "rows": "64", "env": "3", "sort": "env", "order": "asc", "filter": "gpu=0",
            "grouped": "no", "offset": "0",
        }  # fmt: skip

    asyncio.run(scenario())


def test_a_view_that_is_refused_gives_way_to_the_one_before() -> None:
    """The screen stays, and states why."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1))])
        server.refuses = "filter"
        async with server.running() as port:
            live = Live(f"ws://127.0.0.1:{port}", "r1", waits_s=QUICK)
            async with asyncio.timeout(DEADLINE_S), aclosing(live.updates()) as updates:
                seen = [await anext(updates), await anext(updates)]
                live.select(View(filter="gpu=0"))
                seen += [await anext(updates), await anext(updates)]

        assert seen[2] == Connection(state="up", reason="view refused with HTTP 400")
        assert _snapshots(seen) == [1, 1]
        assert live.view == View()

    asyncio.run(scenario())


@pytest.mark.parametrize("url", ["", "127.0.0.1:4380", "ftp://x", "ws://", "ws://h:1/path"])
def test_a_url_that_is_no_address_is_refused_with_the_fix(url: str) -> None:
    """A typing error shows at once and not as a collector that never answers."""
    with pytest.raises(ValueError, match=r"use ws://HOST:PORT"):
        Live(url)


@pytest.mark.parametrize("after", [0, 3])
def test_another_view_comes_from_a_collector_that_never_closes(after: int) -> None:
    """One that sends on and reads nothing is left all the same, before its first snapshot or later."""

    async def scenario() -> None:
        server = Server([codec.encode(_snapshot(1))] * 100_000)
        server.pause_s = 0.1
        async with server.running() as port:
            live = Live(f"ws://127.0.0.1:{port}", waits_s=QUICK)
            async with asyncio.timeout(DEADLINE_S), aclosing(live.updates()) as updates:
                async for _ in updates:
                    if live.received == after:
                        live.select(View(env_id=7))
                    if live.received > after and len(server.queries) == 2:
                        break

        assert server.queries[1]["env"] == "7"

    asyncio.run(scenario())


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
    requested = HistoryQuery()
    player.seek(player.last)
    whole = player.history("sim", requested)
    player.seek(player.first + 6 * SLOW_NS)
    part = player.history("sim", requested)
    again = Player(open_recording(folder))
    again.seek(again.first + 6 * SLOW_NS)

    assert again.history(None, requested) == part
    assert 0 < _kl(part).samples < _kl(whole).samples
    assert _kl(whole).high[: len(_kl(part).high)] == _kl(part).high
    assert player.history("other", requested) is None


def test_a_part_of_a_recording_shows_every_sample_of_it(tmp_path: Path) -> None:
    """Where the whole run has many samples a column, some seconds have one; all else is the same."""
    written = Written(tmp_path)
    written.start()
    written.emit(0.0, [fakes.started(START_NS)])
    for second in range(14):
        at = START_NS + second * SLOW_NS
        samples = [(at + place * SLOW_NS // 100, second * 100 + place) for place in range(100)]
        written.emit(
            second + 0.99,
            [fakes.policy(when, number, kl_divergence=number / 1e5) for when, number in samples],
        )
    written.end(15.0)
    player = Player(open_recording(written.close()))
    player.seek(player.last)
    begin = START_NS / 1e9
    whole, part = (
        _kl(player.history(None, HistoryQuery(since=since, until=until, columns=512)))
        for since, until in ((begin, None), (begin + 5, begin + 7.5))
    )
    afterwards = _kl(player.history(None, HistoryQuery(columns=512)))

    assert (whole.samples, whole.each) == (1400, 4)
    assert part.update == tuple(range(500, 751))
    assert part.high == part.low == tuple(number / 1e5 for number in range(500, 751))
    assert (part.each, part.samples, part.status, part.text) == (1, 1400, whole.status, whole.text)
    assert afterwards.at == whole.at


def test_a_replay_answers_beside_its_snapshots(folder: Path) -> None:
    """The past of the place that is shown, and no word of it while nothing moves the recording."""

    async def session() -> None:
        replay = Replay(Player(open_recording(folder)))
        async with asyncio.timeout(30), aclosing(replay.updates()) as updates:
            replay.seek(replay.span[1])
            requesting = asyncio.create_task(replay.history(None, HistoryQuery()))
            while not requesting.done():
                await anext(updates)
            assert _kl(await requesting).samples > 1

    asyncio.run(session())


def test_a_log_of_snapshots_has_the_past_of_its_readings(tmp_path: Path) -> None:
    """One sample an update, with what the newest snapshot judges; up to the place where it stands."""
    frames, lines = Frames(), list[bytes]()
    for update in range(30):
        event = fakes.policy(frames.now, update, kl_divergence=0.001 * update)
        frame = frames.report("run-1", [event])
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
    whole = _kl(player.history("run-1", HistoryQuery()))
    player.seek(player.first + 10 * SLOW_NS)
    part = _kl(player.history(None, HistoryQuery()))

    assert whole.update == tuple(range(30))
    assert whole.high == pytest.approx(tuple(0.001 * update for update in range(30)))
    assert whole.limits
    assert 0 < len(part.update) < 30
    assert player.history("other", HistoryQuery()) is None


def test_a_log_of_snapshots_has_envs_over_time(tmp_path: Path) -> None:
    """As they were logged, and as the fold had them: not known once nothing came any more."""
    frames = Frames()
    lines = [codec.encode(busy_run(frames).snapshots["run-1", View()])]
    lines += [codec.encode(frames.skip(10).snapshots["run-1", View()]) for _ in range(9)]
    player = player_of(open_input(otlpfiles.written(tmp_path / "snapshots.jsonl", b"\n".join(lines) + b"\n")))
    while player.look_ahead(1):
        continue
    player.seek(player.last)
    whole, lanes = player.heat(None, HeatQuery()), player.heat(None, HeatQuery(of="gpu"))
    player.seek(player.first + 4 * SLOW_NS)
    part = player.heat("run-1", HeatQuery(filter="env=3"))

    assert whole is not None
    assert lanes is not None
    assert part is not None
    folded = frames.heat("run-1", HeatQuery())
    assert folded is not None
    crashed = {row.id: row.cells for row in folded.rows}[3]
    logged = {row.id: row.cells for row in whole.rows}[3]
    assert set(crashed) == {"x", "?"}
    assert (logged.startswith(crashed), set(logged[len(crashed) :])) == (True, {"?"})
    assert [row.id for row in lanes.rows] == ["cuda:0"]
    assert (whole.total, part.total) == (32, 32)
    assert 0 < part.columns < whole.columns
    assert player.heat("other", HeatQuery()) is None


def test_the_past_of_a_collector_comes_over_http() -> None:
    """Named numbers and columns; a collector that has none to give is no error."""

    async def session() -> None:
        notifier = FrameNotifier()
        tower = HandDrivenTower(notifier)
        runner = web.AppRunner(ViewApi(tower, notifier).app(), shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            for update in range(9):
                tower.update("run-1", update)
            towers = Live([f"ws://{host}:{port}"])
            found = await towers.history(
                None, HistoryQuery(names=("kl_*",), columns=4, since=1.0, about=True)
            )
            assert found is not None
            assert [one.name for one in found.curves] == ["kl_divergence"]
            assert len(found.curves[0].at) <= 4
            assert found.about is not None
            assert await towers.history("other", HistoryQuery()) is None
        finally:
            await runner.cleanup()
        assert await towers.history(None, HistoryQuery()) is None

    asyncio.run(session())
