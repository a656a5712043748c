"""Envs and lanes over time over HTTP: what was asked for, with errors that name the parameter."""

from pathlib import Path

import pytest
from aiohttp import ClientSession

from overwatch.serve.archive import Archive
from overwatch.snapshot.heat import HEAT_VERSION, decode
from tests.overwatch.serve.framed import busy_run
from tests.overwatch.serve.test_archive import how, passed_by
from tests.overwatch.serve.test_stream import HandDrivenTower, scenario

PATH = "/api/v1/heat"


def test_envs_and_lanes_are_one_answer_each() -> None:
    """Rows of a window, by the board's filter, worst first; versioned."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.publish(busy_run(tower.frames))
        tower.publish(tower.frames.skip(30))
        whole = decode(await (await client.get(PATH)).read())
        worst = await client.get(f"{PATH}?run=run-1&sort=worst&rows=1&columns=2&filter=env=2-9")
        part, lanes = decode(await worst.read()), decode(await (await client.get(f"{PATH}?of=gpu")).read())

        assert (whole.schema_version, whole.run_id, whole.total) == (HEAT_VERSION, "run-1", 32)
        assert [row.id for row in whole.rows] == list(range(32))
        assert (part.total, part.columns) == (8, 2)
        assert [(row.id, row.cells[-1]) for row in part.rows] == [(3, "x")]
        assert [row.id for row in lanes.rows] == ["cuda:0"]

    scenario(work)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("of=cpu", "of"), ("columns=0", "columns"), ("columns=513", "columns"), ("from=later", "from"),
        ("from=9&to=3", "from"), ("rows=9999", "rows"), ("offset=-1", "offset"), ("sort=best", "sort"),
        ("filter=stge=pruned", "filter"), ("name=x", "name"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_names_the_parameter(query: str, parameter: str) -> None:
    """Status 400 with the value and what is taken instead."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        tower.update("run-1", 1)
        reply = await client.get(f"{PATH}?{query}")
        assert reply.status == 400
        assert (await reply.json())["parameter"] == parameter

    scenario(work)


def test_a_run_that_is_not_there_is_not_found() -> None:
    """Of no run at all, and of one that nothing was received of."""

    async def work(tower: HandDrivenTower, client: ClientSession) -> None:
        none = await client.get(PATH)
        tower.update("run-1", 1)
        other = await client.get(PATH, params={"run": "other"})

        assert (none.status, other.status) == (404, 404)
        assert "'other'" in (await other.json())["error"]

    scenario(work)


def test_a_run_that_made_room_keeps_its_envs_over_time(tmp_path: Path) -> None:
    """The archive answers with what the run had when it was evicted."""
    archive = Archive(tmp_path, lambda: 1 << 20, how)
    archive.start()
    passed_by(archive)
    archive.stop()

    async def work(_: HandDrivenTower, client: ClientSession) -> None:
        found = decode(await (await client.get(PATH, params={"run": "a"})).read())
        assert found.run_id == "a"
        assert found.columns > 0
        assert "x" in found.rows[0].cells

    scenario(work, archive)
