"""The tables of the store, which have a version.

Rules: a store of another version is refused and left as it is. Times are microseconds since 1970,
documents are JSON text. Must not know what rows mean.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    inspect,
)

METADATA: Final = MetaData()
MICROSECONDS: Final = 1_000_000


class Moment(TypeDecorator[datetime]):
    """A time in UTC."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """To be stored."""
        return None if value is None else round(value.timestamp() * MICROSECONDS)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """As it was."""
        return None if value is None else datetime.fromtimestamp(value / MICROSECONDS, UTC)


class Document(TypeDecorator[Any]):
    """What JSON can hold; `None` is no document."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """To be stored; types of messages become what JSON has."""
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """As it was, as plain values."""
        return None if value is None else msgspec.json.decode(value)


def _run_id() -> Column[str]:
    return Column("run_id", Text, ForeignKey("runs.run_id"), nullable=False)


SCHEMA: Final = Table("schema_version", METADATA, Column("version", Integer, nullable=False))

RUNS: Final = Table(
    "runs", METADATA,
    Column("run_id", Text, primary_key=True),
    Column("experiment", Text),
    Column("config", Document, nullable=False),
    Column("seed_base", BigInteger, nullable=False),
    Column("weights_public_key", Text),
    Column("state", Text, nullable=False),
    Column("lineage", BigInteger),
    Column("step", BigInteger),
    Column("checkpoint_version", Text),
    Column("tuned", Document, nullable=False),
    Column("is_doomed", Boolean, nullable=False),
    Column("heartbeat", Document),
    Column("heartbeat_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("request", Document, nullable=False),
    Index("runs_by_age", "created_at"),
)  # fmt: skip
"""`request` is the body that made a run: the same one again is the same run."""

TRANSITIONS: Final = Table(
    "run_state_transitions", METADATA,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("lineage", BigInteger),
    Column("at", Moment, nullable=False),
    Index("transitions_of_run", "run_id"),
)  # fmt: skip

COMMANDS: Final = Table(
    "run_commands", METADATA,
    Column("number", Integer, primary_key=True),
    _run_id(),
    Column("id", Text, nullable=False),
    Column("command", Document, nullable=False),
    Column("status", Text, nullable=False),
    Column("issued_by", Text, nullable=False),
    Column("issued_at", Moment, nullable=False),
    Column("delivered_at", Moment),
    Column("deliveries", Integer, nullable=False),
    Column("acknowledged_at", Moment),
    Column("done", Document),
    UniqueConstraint("run_id", "id"),
)  # fmt: skip

ARTIFACTS: Final = Table(
    "artifacts", METADATA,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("kind", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("sha256", Text),
    Column("details", Document, nullable=False),
    Column("registered_at", Moment, nullable=False),
    UniqueConstraint("run_id", "kind", "version"),
)  # fmt: skip

EVALUATIONS: Final = Table(
    "evaluations", METADATA,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("version", Text, nullable=False),
    Column("mean_return", Float, nullable=False),
    Column("episodes", BigInteger, nullable=False),
    Column("details", Document, nullable=False),
    Column("posted_at", Moment, nullable=False),
    Index("evaluations_of_run", "run_id"),
)  # fmt: skip

AUDIT: Final = Table(
    "control_audit", METADATA,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("at", Moment, nullable=False),
    Column("role", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("details", Document, nullable=False),
    Index("audit_of_run", "run_id"),
)  # fmt: skip

VERSION: Final = 1


class NewerSchemaError(ValueError):
    """A store of a version that this program does not know."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the store has schema version {found}, this program knows {known}; use a newer program"
        )


def prepare(connection: Connection) -> None:
    """Make the tables where there are none, in one transaction; raises `NewerSchemaError`."""
    if not inspect(connection).has_table(SCHEMA.name):
        METADATA.create_all(connection)
        connection.execute(SCHEMA.insert().values(version=VERSION))
        return
    found = connection.execute(SCHEMA.select()).scalar_one()
    if found != VERSION:
        raise NewerSchemaError(found, VERSION)
