"""Where a queue's rows may be: a file, or a PostgreSQL that is begun once for all tests of a worker."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from overwatch_rl.rollouts.store import sqlite_url
from tests.overwatch_rl.orchestrator.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One server of databases for a module."""
    with postgres() as running:
        yield running


@pytest.fixture
def postgresql(server: Postgres) -> str:
    """A database of its own."""
    name = f"q{uuid.uuid4().hex}"
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.url.removesuffix("postgres") + name


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each kind in turn."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "queue")
    url: str = request.getfixturevalue("postgresql")
    return url
