"""Runs and what became of them, in a database: SQLite in a file, or another that SQLAlchemy is given by URL.

A run is a row, and so is each transition, command, artifact, evaluation and entry of its trail: JSON of the
types of the wire. Rules: what is to be known together is written in one transaction, and is on disk when that
has ended; no other transaction changes what one has read. A store of SQLite is used by one thread at a time,
a store of another version is refused and left as it is. Must not know what is decided, nor the time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    inspect,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.states import FINAL, State

T = TypeVar("T")
BUSY_S: Final = 10.0
"""So long a transaction waits for another process that has the store."""
VERSION: Final = 2
_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"busy_timeout={BUSY_S * 1000:.0f}",
)
_METADATA: Final = MetaData()
_SCHEMA: Final = Table("schema_version", _METADATA, Column("version", Integer, nullable=False))
_RUNS: Final = Table(
    "runs", _METADATA,
    Column("run_id", Text, primary_key=True), Column("created", BigInteger, nullable=False, index=True),
    Column("state", Text, nullable=False), Column("value", Text, nullable=False),
)  # fmt: skip
_ROWS: Final = Table(
    "run_rows", _METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False),
    Column("kind", Text, nullable=False), Column("name", Text), Column("value", Text, nullable=False),
    UniqueConstraint("run_id", "kind", "name"),
)  # fmt: skip
_NUMBERED: Final = (wire.AuditRecord, wire.EvaluationRecord)
"""Kinds whose `id` is that of the row."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a run."""

    request: wire.RunRequest
    """The body that created it: the same one again is the same run."""
    created_at: datetime
    weights_public_key: str | None = None
    state: State = "pending"
    lineage: int | None = None
    step: int | None = None
    checkpoint_version: str | None = None
    tuned: dict[str, float] = {}
    is_doomed: bool = False
    """Whether an operator has terminated it: whatever ends a life, the next one only terminates."""
    commands_waiting: int = 0
    heartbeat: wire.Heartbeat | None = None
    heartbeat_at: datetime | None = None


class Unit:
    """One transaction."""

    def __init__(self, connection: Connection, *, is_changing: bool) -> None:
        self.connection = connection
        self._is_changing = is_changing

    def run(self, run_id: str) -> Run | None:
        """What is known of a run; no other transaction changes it before this one ends."""
        query = select(_RUNS.c.value).where(_RUNS.c.run_id == run_id)
        value = self.connection.execute(query.with_for_update() if self._is_changing else query).scalar()
        return None if value is None else msgspec.json.decode(value, type=Run)

    def add_run(self, run_id: str, run: Run) -> None:
        """Store a new run."""
        created = round(run.created_at.timestamp() * 1e6)
        values = {"run_id": run_id, "created": created, "state": run.state, "value": _text(run)}
        self.connection.execute(_RUNS.insert().values(values))

    def change_run(self, run_id: str, run: Run) -> None:
        """Store what was decided of a run."""
        values = {"state": run.state, "value": _text(run)}
        self.connection.execute(_RUNS.update().where(_RUNS.c.run_id == run_id).values(values))

    def runs(self, state: State | None, limit: int) -> dict[str, Run]:
        """Runs, the newest first."""
        query = select(_RUNS.c.run_id, _RUNS.c.value).order_by(_RUNS.c.created.desc(), _RUNS.c.run_id)
        query = query if state is None else query.where(_RUNS.c.state == state)
        rows = self.connection.execute(query.limit(limit))
        return {run_id: msgspec.json.decode(value, type=Run) for run_id, value in rows}

    def open_runs(self) -> dict[str, State]:
        """Runs that are not over."""
        query = select(_RUNS.c.run_id, _RUNS.c.state).where(_RUNS.c.state.not_in(FINAL))
        return {row.run_id: row.state for row in self.connection.execute(query)}

    def put(self, run_id: str, row: msgspec.Struct, name: str | None = None) -> None:
        """Store a row about a run; one of the same kind and name is replaced."""
        kind = type(row).__name__
        if name is not None:
            known = (_ROWS.c.run_id == run_id, _ROWS.c.kind == kind, _ROWS.c.name == name)
            if self.connection.execute(_ROWS.update().where(*known).values(value=_text(row))).rowcount:
                return
        self.connection.execute(_ROWS.insert().values(run_id=run_id, kind=kind, name=name, value=_text(row)))

    def rows(self, run_id: str, kind: type[T]) -> list[T]:
        """Rows of a kind, the oldest first."""
        query = select(_ROWS.c.id, _ROWS.c.value).where(
            _ROWS.c.run_id == run_id, _ROWS.c.kind == kind.__name__
        )
        found = self.connection.execute(query.order_by(_ROWS.c.id))
        if kind not in _NUMBERED:
            return [msgspec.json.decode(value, type=kind) for _, value in found]
        return [
            msgspec.convert({**msgspec.json.decode(value), "id": number}, kind) for number, value in found
        ]


class Store:
    """A database of runs."""

    def __init__(self, url: str) -> None:
        """Open, and make the tables where there are none.

        Raises `ValueError` where the URL is none or the store has another version, `SQLAlchemyError` where it
        is away.
        """
        self._engine = _engine(url)
        with self._engine.begin() as connection:
            if not inspect(connection).has_table(_SCHEMA.name):
                _METADATA.create_all(connection)
                connection.execute(_SCHEMA.insert().values(version=VERSION))
            found = connection.execute(_SCHEMA.select()).scalar_one()
        if found != VERSION:
            self.close()
            raise ValueError(
                f"the store has schema version {found}, this program knows {VERSION}; use the program that "
                "wrote it, or another --store"
            )

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


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


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

    def configure(connection: Any, _: object) -> None:
        # Transactions are begun here, not by the driver, which would begin them too late.
        connection.isolation_level = None
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", configure)
    # A transaction that may write has the store from its first statement on: nothing it read can change.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine
