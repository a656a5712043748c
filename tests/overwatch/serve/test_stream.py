"""The view API over frames of the real fold: answers, errors, and readers that are slow or hostile."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError, web

from overwatch import codec
from overwatch.aggregator import Frame
from overwatch.events import FindingAcknowledged
from overwatch.projection.run import late
from overwatch.serve.archive import AS_IT_WAS, Archive
from overwatch.serve.stream import FrameNotifier, Keep, ViewApi
from overwatch.snapshot import SCHEMA_VERSION, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run
from tests.overwatch.serve.test_archive import how, passed_by

MOST = 2


class HandDrivenTower:
    """A tower whose frames the test makes."""

    def __init__(self, notifier: FrameNotifier) -> None:
        self.frames = Frames()
        self.frame: Frame | None = None
        self.views: list[tuple[str | None, View]] = []
        self.behind = 0.0
        self._notifier = notifier

    def behind_s(self) -> float:
        """As late as the test has it."""
        return self.behind

    def watch(self, run_id: str | None, view: View) -> None:
        """Take a view, up to `MOST` different ones."""
        if (run_id, view) not in self.views and len(set(self.views)) >= MOST:
            raise ValueError(f"{MOST} different views are watched already")
        self.views.append((run_id, view))

    def unwatch(self, run_id: str | None, view: View) -> None:
        """Leave a view."""
        self.views.remove((run_id, view))

    def history(self, run_id: str | None, wanted: HistoryQuery) -> "Future[History | None]":
        """Answer at once, from the fold."""
        coming: Future[History | None] = Future()
        coming.set_result(self.frames.history(run_id, wanted))
        return coming

    def heat(self, run_id: str | None, wanted: HeatQuery) -> "Future[HeatMap | None]":
        """Answer at once, from the fold."""
        coming: Future[HeatMap | None] = Future()
        coming.set_result(self.frames.heat(run_id, wanted))
        return coming

    def publish(self, frame: Frame) -> None:
        """Make a frame the latest."""
        self.frame = frame
        self._notifier.publish(frame)

    def update(self, run_id: str, index: int) -> None:
        """Send one policy update and publish."""
        event = fakes.policy(self.frames.now, index, kl_divergence=0.001 * index)
        self.publish(self.frames.report(run_id, [event], self.views))


@asynccontextmanager
async def serving(
    archive: Archive | None = None, keep: Keep | None = None
) -> AsyncIterator[tuple[HandDrivenTower, ClientSession]]:
    """A view API on a free port, and a client."""
    notifier = FrameNotifier()
    tower = HandDrivenTower(notifier)
    app = ViewApi(tower, notifier, keep, archive).app()
    runner = web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)  # as the collector has it
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with ClientSession(f"http://{host}:{port}") as client:
        try:
            yield tower, client
        finally:
            await runner.cleanup()


async def until(look: Callable[[], bool]) -> None:
    """Wait for what the server does in its own time; the scenario's deadline ends it."""
    while not look():  # noqa: ASYNC110 the condition is a plain list of the tower
        await asyncio.sleep(0)


def scenario(
    work: Callable[[HandDrivenTower, ClientSession], Awaitable[None]],
    archive: Archive | None = None,
    keep: Keep | None = None,
) -> None:
    """Run one test's coroutine against a served view API, within a deadline."""

    async def run() -> None:
        async with asyncio.timeout(20), serving(archive, keep) as (tower, client):
            await work(tower, client)

    asyncio.run(run())


def test_runs_are_listed_with_the_newest_named() -> None:
    """Every run with its state, in order of its id."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        empty = await (await client.get("/api/v1/runs")).json()
        busy_run(tower.frames, "run-2")
        tower.publish(busy_run(tower.frames, "run-1"))
        listed = await (await client.get("/api/v1/runs")).json()

        assert empty == {"newest": None, "runs": [], "schema_version": SCHEMA_VERSION}
        assert (listed["newest"], listed["schema_version"]) == ("run-1", SCHEMA_VERSION)
        assert [(run["criticals"], run["warnings"]) for run in listed["runs"]] == [(2, 0)] * 2
        assert [(run["run_id"], run["newest"], run["state"]) for run in listed["runs"]] == [
            ("run-1", True, "live"),
            ("run-2", False, "live"),
        ]

    scenario(work)


def test_one_snapshot_of_the_newest_or_a_named_run() -> None:
    """The default view answers at once, with the bytes that the codec writes."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        busy_run(tower.frames, "run-1")
        tower.publish(busy_run(tower.frames, "run-2"))
        newest = await (await client.get("/api/v1/snapshot")).read()
        named = await (await client.get("/api/v1/snapshot?run=run-1")).read()

        assert tower.frame is not None
        assert newest == codec.encode(tower.frame.snapshots["run-2", View()])
        assert named == codec.encode(tower.frame.snapshots["run-1", View()])
        assert tower.views == []

    scenario(work)


def test_a_tower_that_falls_behind_shows_that_what_it_shows_is_old() -> None:
    """Its frames are of a tick long past, as live as that was: view, stream and list report it."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        fresh = codec.decode(await (await client.get("/api/v1/snapshot")).read())
        tower.behind = 280.0
        tower.update("run-1", 100)
        async with client.ws_connect("/api/v1/stream") as stream:
            shown = codec.decode((await stream.receive_str()).encode())
        listed = (await (await client.get("/api/v1/runs")).json())["runs"][0]

        assert (fresh.link.state, fresh.verdict.severity) == ("live", "critical")
        assert (shown.link.state, shown.verdict.severity) == ("stale", "critical")
        assert shown.link.data_age_s == pytest.approx(280, abs=5)
        at = datetime.fromtimestamp(int(shown.time), UTC)
        assert shown.verdict.text.startswith(
            f"the collector is 4m40s behind; showing {at:%Y-%m-%dT%H:%M:%SZ} · "
        )
        assert shown.verdict.note == "everything below is 4m40s old"
        assert (listed["state"], listed["severity"]) == ("stale", "critical")

    scenario(work)


@pytest.mark.parametrize(
    ("behind_s", "state"), [(0.3, "live"), (4.9, "live"), (6.0, "slow"), (15.0, "stale")]
)
def test_a_frame_is_as_old_as_it_is_late(behind_s: float, state: str) -> None:
    """What is late by no more than a reader waits is not late; the end of a run stays the end."""
    snapshot = busy_run(Frames()).snapshots["run-1", View()]
    over = [
        msgspec.structs.replace(snapshot, link=msgspec.structs.replace(snapshot.link, state=word))
        for word in ("ended", "lost")
    ]

    calm = msgspec.structs.replace(
        snapshot, verdict=msgspec.structs.replace(snapshot.verdict, severity="ok", note="warm-up")
    )

    assert late(calm, behind_s).verdict.severity == ("ok" if state == "live" else "warning")
    assert late(snapshot, behind_s).link.state == state
    assert (late(snapshot, behind_s) == snapshot) == (state == "live")
    assert [late(one, behind_s) for one in over] == over


def test_a_view_can_be_sorted_filtered_and_flat() -> None:
    """The parameters become the view; what is not given stays as usual."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        requested = asyncio.create_task(
            client.get("/api/v1/snapshot?sort=env&order=asc&filter=env=3-5&grouped=no&offset=1")
        )
        await until(lambda: bool(tower.views))
        view = View(sort="env", descending=False, filter="env=3-5", grouped=False, offset=1)
        assert tower.views == [(None, view)]
        tower.update("run-1", 2)
        snapshot = codec.decode(await (await requested).read())

        assert [env.env_id for env in snapshot.envs] == [4, 5]
        assert (snapshot.board.matched, snapshot.board.direction) == (3, "asc")

    scenario(work)


@pytest.mark.parametrize(
    ("query", "parameter", "stated"),
    [
        ("sort=colour", "sort", "not one of anomaly, env"),
        ("order=up", "order", "not one of desc, asc"),
        ("grouped=maybe", "grouped", "not one of yes, no"),
        ("offset=-1", "offset", "not a whole number from 0 to 131072"),
        ("filter=stge=pruned", "filter", "did you mean stage=?"),
    ],
)
def test_a_view_that_cannot_be_read_is_refused_with_its_parameter(
    query: str, parameter: str, stated: str
) -> None:
    """400, the parameter, and what was probably meant."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        answer = await client.get(f"/api/v1/snapshot?{query}")
        reported = await answer.json()

        assert (answer.status, reported["parameter"]) == (400, parameter)
        assert stated in reported["error"]
        assert tower.views == []

    scenario(work)


def test_a_view_of_ones_own_comes_with_the_next_frame() -> None:
    """Rows and selection are registered while the request waits, and forgotten after it."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        requested = asyncio.create_task(client.get("/api/v1/snapshot?rows=3&env=5"))
        await until(lambda: bool(tower.views))
        assert tower.views == [(None, View(rows=3, env_id=5))]
        tower.update("run-1", 2)
        snapshot = codec.decode(await (await requested).read())

        assert len(snapshot.envs) == 3
        assert snapshot.detail is not None
        assert snapshot.detail.env_id == 5
        assert tower.views == []

    scenario(work)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("rows=many", "rows"),
        ("rows=-1", "rows"),
        ("rows=99999", "rows"),
        ("rows=٣", "rows"),
        ("env=1.5", "env"),
        ("row=3", "row"),
    ],
)
def test_errors_name_the_parameter(query: str, parameter: str) -> None:
    """A parameter that cannot be used is 400 with its name, for both ways to read."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        for path in ("snapshot", "stream"):
            answer = await client.get(f"/api/v1/{path}?{query}")
            body = await answer.json()
            assert (answer.status, body["parameter"]) == (400, parameter)
            assert body["error"]

    scenario(work)


def test_what_is_not_there_is_an_error() -> None:
    """An unknown run, an unknown path, and a stream without WebSocket are JSON errors."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        answers = [
            await client.get(path) for path in ("/api/v1/snapshot?run=nope", "/api/v2/runs", "/api/v1/stream")
        ]
        refused = await client.post("/api/v1/runs")

        assert [answer.status for answer in answers] == [404, 404, 426]
        assert refused.status == 405
        assert "nope" in (await answers[0].json())["error"]
        for answer in [*answers, refused]:
            assert "error" in await answer.json()

    scenario(work)


def test_too_many_views_are_refused() -> None:
    """A view beyond the tower's limit is 503, and frees nothing that others read."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        sockets = [await client.ws_connect(f"/api/v1/stream?rows={rows}") for rows in (1, 2)]
        with pytest.raises(WSServerHandshakeError) as caught:
            await client.ws_connect("/api/v1/stream?rows=3")
        assert caught.value.status == 503
        for socket in sockets:
            await socket.close()
        await until(lambda: not tower.views)

    scenario(work)


def test_a_stream_sends_each_change() -> None:
    """The current snapshot comes at once, then one a frame."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        async with client.ws_connect("/api/v1/stream") as socket:
            seen = [(await socket.receive_json())["run"]["update"]]
            for index in (2, 3):
                tower.update("run-1", index)
                seen.append((await socket.receive_json())["run"]["update"])

        assert seen == [1, 2, 3]

    scenario(work)


def test_a_stream_of_a_run_that_is_yet_to_come_waits_for_it() -> None:
    """A reader may connect before its run exists."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        async with client.ws_connect("/api/v1/stream?run=later") as socket:
            tower.publish(busy_run(tower.frames, "other"))
            tower.publish(busy_run(tower.frames, "later"))
            first = await socket.receive_json()

        assert first["run"]["run_id"] == "later"

    scenario(work)


def test_a_slow_reader_gets_the_newest() -> None:
    """A reader that does not read misses snapshots; what it gets after waking ends with the newest."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames, n_envs=256))
        async with client.ws_connect("/api/v1/stream", max_msg_size=0) as socket:
            first = await socket.receive()
            socket._conn.protocol.pause_reading()  # type: ignore[union-attr]  # a reader that stands still
            last = 1 + (32 << 20) // len(first.data)
            for index in range(2, last + 1):
                tower.update("run-1", index)
                await asyncio.sleep(0)
            socket._conn.protocol.resume_reading()  # type: ignore[union-attr]
            seen = []
            while not seen or seen[-1] != last:
                seen.append(json.loads((await socket.receive()).data)["run"]["update"])

        assert seen == sorted(seen)
        assert len(seen) < last / 2

    scenario(work)


def test_a_reader_that_goes_away_is_no_error() -> None:
    """Also while a snapshot is packed for it: the log gets no traceback."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        errors = list[dict[str, object]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        tower.publish(busy_run(tower.frames, n_envs=256))
        for index in range(2, 26):
            socket = await client.ws_connect("/api/v1/stream", max_msg_size=0, compress=15)
            await socket.receive()
            tower.update("run-1", index)
            for _ in range(index):
                await asyncio.sleep(0)
            socket._conn.transport.abort()  # type: ignore[union-attr]  # a browser that is killed
            await until(lambda: not tower.views)
        await asyncio.sleep(0.1)
        gc.collect()
        assert errors == []

    scenario(work)


def test_stopping_hangs_up_on_readers() -> None:
    """Readers are notified that the collector stops."""

    async def work() -> None:
        async with asyncio.timeout(10):
            async with serving() as (tower, client):
                tower.publish(busy_run(tower.frames))
                socket = await client.ws_connect("/api/v1/stream")
                await socket.receive()
                closing = asyncio.create_task(socket.receive())
                await asyncio.sleep(0)
            # The server is gone here, and the client with it; the farewell came before that.
            message = await closing
            assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)
            assert tower.views == []

    asyncio.run(work())


def archived(folder: Path) -> Archive:
    """An archive of some runs that made room."""
    archive = Archive(folder, lambda: 1 << 20, how)
    archive.start()
    passed_by(archive)
    archive.stop()
    return archive


def test_a_run_that_made_room_is_listed_and_shown_as_it_was(tmp_path: Path) -> None:
    """By one answer and by a stream, beside the runs that live; one that nobody kept is not there."""
    archive = archived(tmp_path)

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.update("run-1", 1)
        listed = await (await client.get("/api/v1/runs")).json()
        states = {line["run_id"]: line["archived"] for line in listed["runs"]}
        assert (states["run-1"], states["a"], states["b"]) == (False, True, True)
        shown = codec.decode(await (await client.get("/api/v1/snapshot?run=b&rows=3")).read())
        assert (shown.run.run_id, shown.run.outcome, len(shown.envs)) == ("b", "failed", 3)
        async with client.ws_connect("/api/v1/stream?run=a") as socket:
            sent = codec.decode((await socket.receive()).data.encode())
            assert (sent.run.run_id, sum(sent.board.counts.values())) == ("a", 9)
        answer = await client.get("/api/v1/snapshot?run=nobody")
        assert answer.status == 404
        assert "overwatch replay" in (await answer.json())["error"]

    scenario(work, archive)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_run_that_makes_room_while_it_is_watched_is_shown_as_it_was(tmp_path: Path, *, keeps: bool) -> None:
    """The same stream states it, once, with or without an archive, and goes on when the run comes back."""
    archive = archived(tmp_path) if keeps else None

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames, "a"))
        async with client.ws_connect("/api/v1/stream?run=a") as socket:
            live = codec.decode((await socket.receive()).data.encode())
            others = HandDrivenTower(tower._notifier)
            others.update("other", 1)
            tower.frame = others.frame
            others.update("other", 2)
            tower.frame = others.frame
            kept = codec.decode((await socket.receive()).data.encode())
            tower.update("a", 7)
            back = codec.decode((await socket.receive()).data.encode())

        assert live.verdict.note != AS_IT_WAS
        assert kept.run.run_id == "a"
        assert kept.verdict.note == AS_IT_WAS
        assert kept.run.outcome == ("failed" if keeps else live.run.outcome)
        assert (back.run.update, back.verdict.note) == (7, None)

    scenario(work, archive)


def test_an_archived_run_can_only_be_read(tmp_path: Path) -> None:
    """Acknowledging one of its findings is refused with the reason, and not as an unknown run."""
    archive = archived(tmp_path)

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.update("run-1", 1)
        for run_id, status, words in (("a", 409, "archived"), ("nobody", 404, "no such run")):
            answer = await client.post(f"/api/v1/findings/env-crashed:env:3/ack?run={run_id}")
            refused = await answer.json()
            assert (answer.status, refused["parameter"]) == (status, "run")
            assert words in refused["error"]
        assert kept == []

    kept: list[str] = []

    async def keep(run_id: str, _: FindingAcknowledged) -> None:
        kept.append(run_id)

    scenario(work, archive, keep)


def test_the_data_of_an_archived_run_grows_old(tmp_path: Path) -> None:
    """Listed and opened its age is of now, not of when it made room; the rest stays as it was."""
    archive = archived(tmp_path)
    (was,) = (line for line in archive.lines() if line.run_id == "a")

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.update("run-1", 1)
        tower.publish(tower.frames.skip(100))
        assert tower.frame is not None
        listed = await (await client.get("/api/v1/runs")).json()
        (now,) = (line for line in listed["runs"] if line["run_id"] == "a")
        assert was.data_age_s is not None
        grown = tower.frame.tick / 1e9 - was.time
        assert grown > 0
        assert now["data_age_s"] == pytest.approx(was.data_age_s + grown)
        assert (now["time"], now["text"]) == (was.time, was.text)
        shown = codec.decode(await (await client.get("/api/v1/snapshot?run=a")).read())
        async with client.ws_connect("/api/v1/stream?run=a") as socket:
            sent = codec.decode((await socket.receive()).data.encode())
        assert shown.link.data_age_s == sent.link.data_age_s == pytest.approx(was.data_age_s + grown)
        assert shown.time == sent.time == was.time

    scenario(work, archive)
