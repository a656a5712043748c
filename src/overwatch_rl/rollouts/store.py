"""Rows of the queue in SQLite or PostgreSQL, and one transaction for all calls that came meanwhile.

Rules: a transaction locks the row of the queue, reads what other servers changed since the last one, decides,
writes what changed, and commits; what is answered afterwards is committed. Where it fails, the state is read
again. SQLite is one server's (an exclusive lock on the file); of PostgreSQL any number are.

Time is the queue's own: nanoseconds that a server's monotonic clock counts, on from the greatest that any
server has written. No wall clock is read, so setting one changes nothing; while no server runs, no time
passes. Must not know HTTP or what is decided.
"""

import enum
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    event,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from overwatch_rl.rollouts.answers import Limits
from overwatch_rl.rollouts.state import NS, Answered, Env, Head, Item, Lease, Rows, State, Ticket

_METADATA: Final = MetaData()
_QUEUE: Final = Table(
    "rollouts_queue", _METADATA,
    Column("id", Integer, primary_key=True), Column("revision", BigInteger, nullable=False),
    Column("clock", BigInteger, nullable=False), Column("head", Text, nullable=False),
)  # fmt: skip
_GONE: Final = Table(
    "rollouts_gone", _METADATA,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(20), primary_key=True), Column("ids", Text, nullable=False),
)  # fmt: skip
"""Which rows were deleted, for as long as another server may still have them."""


def _table(name: str, key: Any, *more: Column[Any]) -> Table:
    return Table(
        f"rollouts_{name}", _METADATA, Column("id", key, primary_key=True, autoincrement=False),
        Column("revision", BigInteger, nullable=False, index=True),
        Column("value", Text, nullable=False), *more,
    )  # fmt: skip


_ITEMS: Final = _table("items", BigInteger, Column("body", LargeBinary))
_KINDS: Final[dict[str, tuple[Table, Any]]] = {
    "envs": (_table("envs", BigInteger), Env),
    "items": (_ITEMS, Item),
    "tickets": (_table("tickets", BigInteger), Ticket),
    "late": (_table("late", BigInteger), Ticket),
    "leases": (_table("leases", BigInteger), Lease),
    "ended": (_table("ended", BigInteger), str),
    "keys": (_table("keys", String(400)), Answered),
}
"""The tables of rows, as JSON; a group has its bytes beside, and is written once, whoever leases it."""
_HISTORY: Final = 10_000
"""A server that is so many revisions behind reads everything."""
_PURGE_EVERY: Final = 500
_BEAT_NS: Final = 5 * NS
"""How often the time is written where nothing else is."""
_PART: Final = 500
"""Ids in one statement."""


class Level(enum.Enum):
    """What an acknowledged group survives."""

    MEMORY = "memory"
    FAST = "fast"
    FSYNC = "fsync"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Where, and how much."""

    url: str
    """`sqlite://` for memory, `sqlite:///PATH`, or `postgresql+psycopg://…`."""
    level: Level = Level.FSYNC
    held_bytes: int = 1 << 30
    """Of groups that are queued or leased."""


class AmbiguousError(Exception):
    """The connection ended while a commit was under way: nobody knows whether it happened."""


class Store:
    """One server's connection to the database; not for two threads at once."""

    def __init__(self, limits: StoreLimits, queue: Limits | None = None) -> None:
        """Raise `SQLAlchemyError` where the database cannot be used."""
        self._limits = limits
        self._engine = _engine(limits)
        self.is_alone = self._engine.dialect.name == "sqlite"
        self._insert = sqlite_insert if self.is_alone else postgresql_insert
        self._connection: Connection
        """That of the transaction that is under way."""
        self._head = b""
        self._revision = self._purged = -1
        self._clock = self._offset = 0
        self.state = State(limits=queue or Limits(), server=uuid.uuid4().hex)
        with self._engine.begin() as connection:
            _METADATA.create_all(connection)
            first = {"id": 1, "revision": 0, "clock": 0, "head": _text(Head())}
            connection.execute(self._insert(_QUEUE).values(first).on_conflict_do_nothing())

    def room(self, size: int) -> bool:
        """Whether groups of so many bytes may be kept."""
        return self.state.head.held_bytes + size <= self._limits.held_bytes

    def read(self, items: Sequence[int]) -> dict[int, bytes]:
        """Return bodies, in the transaction that is under way."""
        bodies = {item: self.state.bodies[item] for item in items if item in self.state.bodies}
        wanted = [item for item in items if item not in bodies]
        for start in range(0, len(wanted), _PART):
            part = _ITEMS.c.id.in_(wanted[start : start + _PART])
            rows = self._connection.execute(select(_ITEMS.c.id, _ITEMS.c.body).where(part))
            bodies.update((row.id, row.body) for row in rows)
        return bodies

    def latest(self) -> bytes | None:
        """Return the body of the group that was accepted last, of those that are held."""
        query = select(_ITEMS.c.body).order_by(_ITEMS.c.id.desc()).limit(1)
        return self._connection.execute(query).scalar()

    def transact(self, decide: Callable[[int], None]) -> None:
        """Decide over the state as it is now, given the time, and commit.

        Raise `SQLAlchemyError` where nothing happened, `AmbiguousError` where nobody knows.
        """
        with self._engine.connect() as connection:
            transaction = connection.begin()
            self._connection = connection
            try:
                self._refresh(connection)
                decide(self._clock)
                self._write(connection)
            except BaseException:
                self._forget()
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except SQLAlchemyError as error:
                self._forget()
                if self.is_alone:
                    transaction.rollback()
                    raise
                raise AmbiguousError(str(error)) from error

    def close(self) -> None:
        """Give the connection up."""
        self._engine.dispose()

    def _forget(self) -> None:
        """Read everything again next time."""
        self._revision = -1
        self.state.bodies.clear()
        self.state.reports.clear()

    def _refresh(self, connection: Connection) -> None:
        row = connection.execute(select(_QUEUE).where(_QUEUE.c.id == 1).with_for_update()).one()
        self._clock = self._now(row.clock)
        self._written = row.clock
        if row.revision != self._revision:
            self._load(connection, row.revision, row.head.encode())

    def _now(self, written: int) -> int:
        elapsed = time.monotonic_ns()
        self._offset = max(self._offset, written - elapsed) if self._offset else written - elapsed
        return elapsed + self._offset

    def _load(self, connection: Connection, revision: int, head: bytes) -> None:
        since = self._revision if self._revision >= revision - _HISTORY else -1
        state = self.state
        query = select(_GONE.c.kind, _GONE.c.ids).where(_GONE.c.revision > since)
        for name, ids in connection.execute(query) if since >= 0 else ():
            for key in msgspec.json.decode(ids):
                getattr(state, name).read(key, None)
        for name, (table, kind) in _KINDS.items():
            rows: Rows[Any, Any] = getattr(state, name)
            if since < 0:
                rows.empty()
            newer = select(table.c.id, table.c.value).where(table.c.revision > since)
            for key, value in connection.execute(newer.order_by(table.c.revision, table.c.id)):
                rows.read(key, msgspec.json.decode(value, type=kind))
        state.head = msgspec.json.decode(head, type=Head)
        state.read_lanes()
        self._head, self._revision = head, revision

    def _write(self, connection: Connection) -> None:
        """Write what changed; with nothing changed the time alone, now and then."""
        state, revision = self.state, self._revision + 1
        head = msgspec.json.encode(state.head)
        is_changed = head != self._head or any(getattr(state, name).changed for name in _KINDS)
        if not is_changed and self._clock - self._written < _BEAT_NS:
            return
        for name in _KINDS:
            self._write_rows(connection, name, revision)
        if revision % _PURGE_EVERY == 0:
            connection.execute(delete(_GONE).where(_GONE.c.revision < revision - _HISTORY))
        values = {"revision": revision, "clock": self._clock, "head": head.decode()}
        connection.execute(update(_QUEUE).where(_QUEUE.c.id == 1).values(values))
        state.bodies.clear()
        self._head, self._revision = head, revision

    def _write_rows(self, connection: Connection, name: str, revision: int) -> None:
        table, rows = _KINDS[name][0], getattr(self.state, name)
        bodies = self.state.bodies if name == "items" else {}
        changed = sorted(rows.changed)
        gone = [key for key in changed if key not in rows]
        values = [
            {"id": key, "revision": revision, "value": _text(rows[key])} for key in changed if key in rows
        ]
        if new := [{**row, "body": bodies[row["id"]]} for row in values if row["id"] in bodies]:
            connection.execute(table.insert(), new)
        if old := [row for row in values if row["id"] not in bodies]:
            statement = self._insert(table)
            now = {"revision": statement.excluded.revision, "value": statement.excluded.value}
            connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=now), old)
        if gone:
            ids = [{"gone_id": key} for key in gone]
            connection.execute(delete(table).where(table.c.id == bindparam("gone_id")), ids)
            if not self.is_alone:
                connection.execute(_GONE.insert(), {"revision": revision, "kind": name, "ids": _text(gone)})
        rows.changed.clear()


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def sqlite_url(folder: Path) -> str:
    """The URL of a data folder's one file; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'rollouts.sqlite'}"


def _engine(limits: StoreLimits) -> Engine:
    if not limits.url.startswith("sqlite:"):
        engine = create_engine(limits.url, pool_size=1, max_overflow=0, pool_pre_ping=True)
        synchronous = "off" if limits.level is Level.FAST else "on"
        # A server that hangs with the lock must not hold the others up for ever.
        settings = (
            f"SET synchronous_commit = {synchronous}",
            "SET idle_in_transaction_session_timeout = '10s'",
            "SET lock_timeout = '5s'",
        )
    else:
        engine = create_engine(
            limits.url, poolclass=StaticPool, connect_args={"check_same_thread": False, "timeout": 0.5}
        )
        synchronous = "FULL" if limits.level is Level.FSYNC else "OFF"
        settings = (
            "PRAGMA locking_mode = EXCLUSIVE",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {synchronous}",
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))

    def configure(connection: Any, _: object) -> None:
        """Before the first transaction of a connection."""
        if limits.url.startswith("sqlite:"):
            connection.isolation_level = None
        cursor = connection.cursor()
        for setting in settings:
            cursor.execute(setting)
        cursor.close()
        if not limits.url.startswith("sqlite:"):
            connection.commit()

    event.listen(engine, "connect", configure)
    return engine
