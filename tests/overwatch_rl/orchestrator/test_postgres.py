"""PostgreSQL by URL, in place of SQLite: the same runs, the same refusals, after a crash too."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.store import Run, Store
from tests.overwatch_rl.orchestrator.postgres import Postgres, postgres
from tests.overwatch_rl.orchestrator.serving import Turned, serving
from tests.overwatch_rl.orchestrator.test_api import repeated, whole_run

FIRST = Run(request=wire.RunRequest(), created_at=datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One for all: each test has run ids or tables of its own."""
    with postgres() as made:
        yield made


@pytest.fixture
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    """A schema of its own."""
    schema = f"s{abs(hash(request.node.name))}"
    admin = Store(server.url)
    with admin.changing() as unit:
        unit.connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    admin.close()
    return f"{server.url}?options=-csearch_path%3D{schema}"


def test_a_run_is_kept_as_in_sqlite(url: str) -> None:
    """From its beginning to its end, and repeated requests."""

    async def check() -> None:
        async with serving(url=url) as one:
            await whole_run(one)

    asyncio.run(check())


def test_repeated_requests_are_as_in_sqlite(url: str) -> None:
    """The same thing or a conflict."""

    async def check() -> None:
        async with serving(url=url) as one:
            await repeated(one)

    asyncio.run(check())


def test_two_transactions_never_decide_on_the_same_state(url: str) -> None:
    """The row of the run is locked."""
    stores = [Store(url), Store(url)]
    with stores[0].changing() as unit:
        unit.add_run("r", FIRST)

    def add(to: Store) -> None:
        for _ in range(50):
            with to.changing() as unit:
                run = unit.run("r")
                assert run is not None
                unit.change_run("r", replace(run, step=(run.step or 0) + 1))

    threads = [threading.Thread(target=add, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    with stores[0].reading() as unit:
        assert unit.run("r") == replace(FIRST, step=100)
    for store in stores:
        store.close()


def test_a_database_that_crashes_is_an_answer_and_what_was_answered_is_there(
    server: Postgres, url: str
) -> None:
    """503 while it is away, with the time to ask again; then everything goes on."""
    time = Turned()

    async def check() -> None:
        async with serving(url=url, time=time) as one:
            await one.create()
            await one.beat(step=4)
            await one.post("/pause", None, 201)
            await asyncio.to_thread(server.stop, "immediate")
            assert "the store cannot be used" in (await one.beat(503, step=5))["error"]
            assert (await one.query("GET", "/healthz", None, 503))["status"] == "failed"
            await asyncio.to_thread(server.start)
            await one.beat(step=6)
            run = await one.get()
            assert (run["step"], run["commands_waiting"]) == (6, 1)

    asyncio.run(check())
