"""Envs and lanes over time over HTTP: what was asked for, with errors that name the parameter."""

from pathlib import Path

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
        assert found.rows[3].cells.endswith("x")

    scenario(work, archive)
