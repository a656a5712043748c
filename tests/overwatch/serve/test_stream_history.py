"""The past over HTTP: what was asked for, once a second, with errors that name the parameter."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from aiohttp import ClientSession

from overwatch.serve.archive import Archive
from overwatch.snapshot.history import HISTORY_VERSION, History
from tests import fakes
from tests.overwatch.serve.test_archive import how, passed_by
from tests.overwatch.serve.test_stream import HandDrivenTower, scenario

PATH, HEAT = "/api/v1/history", "/api/v1/heat"


def test_the_past_of_a_run_is_one_answer() -> None:
    """Numbers by name, typed and versioned."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        for update in range(5):
            event = fakes.policy(tower.frames.now, update, kl_divergence=0.001 * update, mine=3.0)
            tower.publish(tower.frames.report("run-1", [event]))
        whole = msgspec.json.decode(await (await client.get(PATH)).read(), type=History)
        named = msgspec.json.decode(
            await (await client.get(PATH, params={"run": "run-1", "name": "mi*", "columns": "2"})).read(),
            type=History,
        )

        assert (whole.schema_version, whole.run_id) == (HISTORY_VERSION, "run-1")
        assert {"kl_divergence", "mine"} <= {one.name for one in whole.curves}
        assert [(one.name, len(one.at)) for one in named.curves] == [("mine", 2)]
        assert named.names == whole.names

    scenario(work)


@pytest.mark.parametrize("path", [PATH, HEAT])
@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("columns=0", "columns"), ("columns=513", "columns"), ("columns=x", "columns"),
        ("from=later", "from"), ("from=nan", "from"), ("to=-1", "to"), ("from=9&to=3", "from"),
        ("to=1e30", "to"), ("columns=-1", "columns"), ("names=x", "names"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_names_the_parameter(path: str, query: str, parameter: str) -> None:
    """Status 400 with the value and what is taken instead."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.update("run-1", 1)
        reply = await client.get(f"{path}?{query}")
        assert reply.status == 400
        assert (await reply.json())["parameter"] == parameter

    scenario(work)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        (f"{PATH}?about=maybe", "about"), (f"{PATH}?" + "&".join(f"name=x{n}" for n in range(65)), "name"),
        (f"{HEAT}?of=cpu", "of"), (f"{HEAT}?rows=9999", "rows"), (f"{HEAT}?offset=-1", "offset"),
        (f"{HEAT}?sort=best", "sort"), (f"{HEAT}?filter=stge=pruned", "filter"), (f"{HEAT}?name=x", "name"),
    ],
)  # fmt: skip
def test_what_one_of_them_cannot_be_asked_names_the_parameter(query: str, parameter: str) -> None:
    """The same of parameters that only one has."""
    path, _, rest = query.partition("?")
    test_what_cannot_be_asked_names_the_parameter(path, rest, parameter)


@pytest.mark.parametrize("path", [PATH, HEAT])
def test_a_run_that_is_not_there_is_not_found(path: str) -> None:
    """Of no run at all, and of one that nothing was received of."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        none = await client.get(path)
        tower.update("run-1", 1)
        other = await client.get(path, params={"run": "other"})

        assert (none.status, other.status) == (404, 404)
        assert "'other'" in (await other.json())["error"]

    scenario(work)


def test_a_run_that_made_room_keeps_its_past(tmp_path: Path) -> None:
    """The archive answers with what the run had when it was evicted."""
    archive = Archive(tmp_path, lambda: 1 << 20, how)
    archive.start()
    passed_by(archive)
    archive.stop()

    async def work(_: HandDrivenTower, client: ClientSession) -> None:
        found = msgspec.json.decode(await (await client.get(PATH, params={"run": "a"})).read(), type=History)
        assert found.run_id == "a"
        assert [moment.code for moment in found.moments]

    scenario(work, archive)


def test_without_a_tick_the_answer_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that does not tick answers 503 after its patience."""
    monkeypatch.setattr("overwatch.serve.stream.ANSWER_S", 0.01)

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        coming = asyncio.get_running_loop().create_future()
        monkeypatch.setattr("overwatch.serve.stream.asyncio.wrap_future", lambda _: coming)
        tower.update("run-1", 1)
        assert (await client.get(PATH)).status == 503

    scenario(work)
