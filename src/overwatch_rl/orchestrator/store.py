"""Runs and what became of them, in a database: SQLite in a file, or another that SQLAlchemy is given by URL.

Rules: what is to be known together is written in one transaction, and is on disk when that has ended; a
transaction sees one state of the store, and no other one changes it meanwhile. A store of SQLite is used by
one thread at a time. Must not know what is decided, nor the time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, RowMapping, Select, Table, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.runs import Held, Run
from overwatch_rl.orchestrator.states import FINAL, State
from overwatch_rl.orchestrator.tables import COMMANDS, RUNS, prepare

T = TypeVar("T")
BUSY_S: Final = 10.0
"""So long a transaction waits for another process that has the store."""
_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"busy_timeout={BUSY_S * 1000:.0f}",
)


class Unit:
    """One transaction."""

    def __init__(self, connection: Connection, *, is_changing: bool) -> None:
        self.connection = connection
        self._is_changing = is_changing

    def add_run(self, run_id: str, request: wire.RunRequest, at: datetime) -> None:
        """A run that is pending."""
        stated = msgspec.to_builtins(request)
        values = {name: stated[name] for name in ("experiment", "config", "seed_base", "weights_public_key")}
        row = {
            "run_id": run_id,
            "state": "pending",
            "tuned": {},
            "is_doomed": False,
            "created_at": at,
            "request": stated,
        }
        self.connection.execute(RUNS.insert().values(**values, **row))

    def request(self, run_id: str) -> wire.RunRequest | None:
        """What made a run."""
        row = self._run(run_id)
        return None if row is None else msgspec.convert(row["request"], wire.RunRequest)

    def run(self, run_id: str) -> Run | None:
        """What decisions depend on; no other transaction changes it before this one ends."""
        row = self._run(run_id)
        return None if row is None else msgspec.convert(_named(row), Run)

    def change_run(self, run_id: str, run: Run | None = None, **values: object) -> None:
        """What was decided of a run, and its columns by name."""
        decided = {} if run is None else msgspec.structs.asdict(run)
        self.connection.execute(RUNS.update().where(RUNS.c.run_id == run_id).values(**decided, **values))

    def record(self, run_id: str) -> wire.RunRecord | None:
        """All that is stored of a run."""
        found = self._records(select(RUNS).where(RUNS.c.run_id == run_id))
        return found[0] if found else None

    def records(self, state: State | None, limit: int) -> list[wire.RunRecord]:
        """Runs, the newest first."""
        rows = select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.run_id).limit(limit)
        return self._records(rows if state is None else rows.where(RUNS.c.state == state))

    def open_runs(self) -> dict[str, State]:
        """Runs that are not over."""
        rows = select(RUNS.c.run_id, RUNS.c.state).where(RUNS.c.state.not_in(FINAL))
        return {row.run_id: row.state for row in self.connection.execute(rows)}

    def add(self, table: Table, run_id: str, row: msgspec.Struct) -> None:
        """A row about a run; an `id` that the table makes is left out."""
        values = msgspec.structs.asdict(row)
        values.pop("id", None)
        self.connection.execute(table.insert().values(run_id=run_id, **values))

    def all(self, table: Table, run_id: str, kind: type[T]) -> list[T]:
        """Rows about a run, the oldest first."""
        rows = select(table).where(table.c.run_id == run_id).order_by(table.c.id)
        return [msgspec.convert(_named(row), kind) for row in self.connection.execute(rows).mappings()]

    def commands(self, run_id: str) -> list[wire.CommandRecord]:
        """All that is stored of a run's commands, the oldest first."""
        rows = select(COMMANDS).where(COMMANDS.c.run_id == run_id).order_by(COMMANDS.c.number)
        return [
            msgspec.convert({**_named(row), "kind": row["command"]["kind"]}, wire.CommandRecord)
            for row in self.connection.execute(rows).mappings()
        ]

    def add_command(self, run_id: str, held: Held, issued_by: str, at: datetime) -> None:
        """A command that was issued."""
        answered = None if held.done is None else at
        values = {"run_id": run_id, "issued_by": issued_by, "issued_at": at, "acknowledged_at": answered}
        self.connection.execute(COMMANDS.insert().values(**msgspec.structs.asdict(held), **values))

    def change_command(self, run_id: str, held: Held, **values: object) -> None:
        """What became of a command, and its columns by name."""
        changed = {"status": held.status, "deliveries": held.deliveries, "done": held.done, **values}
        rows = COMMANDS.update().where(COMMANDS.c.run_id == run_id, COMMANDS.c.id == held.id)
        self.connection.execute(rows.values(**changed))

    def supersede(self, run_id: str, ids: Sequence[str]) -> None:
        """Commands that will not be delivered any more."""
        rows = COMMANDS.update().where(COMMANDS.c.run_id == run_id, COMMANDS.c.id.in_(ids))
        self.connection.execute(rows.values(status="superseded"))

    def _run(self, run_id: str) -> RowMapping | None:
        rows = select(RUNS).where(RUNS.c.run_id == run_id)
        rows = rows.with_for_update() if self._is_changing else rows
        return self.connection.execute(rows).mappings().one_or_none()

    def _records(self, rows: Select[Any]) -> list[wire.RunRecord]:
        found = list(self.connection.execute(rows).mappings())
        counts = (
            select(COMMANDS.c.run_id, func.count())
            .where(COMMANDS.c.status.in_(("queued", "delivered")))
            .where(COMMANDS.c.run_id.in_([row["run_id"] for row in found]))
            .group_by(COMMANDS.c.run_id)
        )
        waiting: dict[str, int] = {row[0]: row[1] for row in self.connection.execute(counts)}
        absent = {"health": None, "silence_s": None}
        return [
            msgspec.convert(
                {**_named(row), **absent, "commands_waiting": waiting.get(row["run_id"], 0)}, wire.RunRecord
            )
            for row in found
        ]


class Store:
    """A database of runs."""

    def __init__(self, url: str) -> None:
        """Open, and bring the tables to this version.

        Raises `ValueError` where the URL is none or the store is newer, `SQLAlchemyError` where it is away.
        """
        self._engine = _engine(url)
        with self.changing() as unit:
            prepare(unit.connection)

    @property
    def name(self) -> str:
        """Its URL, without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    @contextmanager
    def changing(self) -> Iterator[Unit]:
        """A transaction: all of it, or none."""
        with self._engine.begin() as connection:
            yield Unit(connection, is_changing=True)

    @contextmanager
    def reading(self) -> Iterator[Unit]:
        """One state of the store."""
        with self._engine.connect() as connection:
            yield Unit(connection, is_changing=False)

    def close(self) -> None:
        """Give the connections up."""
        self._engine.dispose()


def _named(row: RowMapping) -> dict[str, Any]:
    """A row by the names of its columns, as plain text."""
    return {str(name): value for name, value in row.items()}


def _engine(text: str) -> Engine:
    try:
        url = make_url(text)
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise ValueError(
            f"store {text!r} cannot be used: {error}; write e.g. sqlite:///runs.db, or "
            "postgresql+psycopg://user@host/name with its driver installed"
        ) from error
    if url.database not in (None, "", ":memory:"):
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _: object) -> None:
    """Transactions are begun here, not by the driver, which would begin them too late."""
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    """A transaction that may write has the store from its first statement on: nothing it read can change."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
