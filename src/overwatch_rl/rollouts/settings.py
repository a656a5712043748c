"""From flags to what the parts of the server are given; the parts validate themselves.

Raises `ValueError` naming the value and the fix. Must not know how anything is served.
"""

import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from overwatch_rl.rollouts.answers import MOST_SEQUENCES, Limits
from overwatch_rl.rollouts.store import Level, StoreLimits, sqlite_url
from overwatch_rl.web.authorisation import Authorisation, read_token
from overwatch_rl.web.process import address, endpoint
from overwatch_rl.web.site import ConnectionLimits, tls_context


class RolloutsFlags(TypedDict):
    """What `overwatch-rl rollouts` was given."""

    listen: str
    folder: Path
    database: str | None
    durability: str
    token_file: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    max_staleness: int
    max_queued_batches: int
    max_memory_mib: int
    max_body_mib: int
    max_connections: int
    read_s: float
    idle_s: float
    lease_s: float
    implicit_lease_s: float
    env_lease_s: float
    ticket_s: float
    retry_s: float
    run_id: str | None
    endpoint: str | None
    telemetry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsSettings:
    """One server."""

    host: str
    port: int
    """0 for any that is free."""
    authorisation: Authorisation
    place: str
    """Where groups are, for a person."""
    limits: Limits
    store: StoreLimits
    most_body_bytes: int
    connections: ConnectionLimits
    tls: ssl.SSLContext | None
    """`None` for plain HTTP."""
    run_id: str | None
    endpoint: str | None
    is_reporting: bool


def rollouts_settings(flags: RolloutsFlags) -> RolloutsSettings:
    """Assemble and validate; raises `OSError` where a file cannot be read."""
    host, port = address(flags["listen"])
    token = None if flags["token_file"] is None else read_token(flags["token_file"])
    level = Level(flags["durability"])
    held = flags["max_memory_mib"] << 20
    place, url = _place(flags, level)
    return RolloutsSettings(
        host=host,
        port=port,
        authorisation=Authorisation(host, token),
        place=place,
        limits=Limits(
            max_staleness=flags["max_staleness"],
            max_queued_batches=flags["max_queued_batches"],
            lease_s=flags["lease_s"],
            implicit_lease_s=flags["implicit_lease_s"],
            env_lease_s=flags["env_lease_s"],
            ticket_s=flags["ticket_s"],
            retry_s=flags["retry_s"],
            max_batch_size=min(MOST_SEQUENCES, held // 64),  # the shortest sequence, with mask and score
        ),
        store=StoreLimits(url=url, level=level, held_bytes=held),
        most_body_bytes=flags["max_body_mib"] << 20,
        connections=ConnectionLimits(
            most=flags["max_connections"], read_s=flags["read_s"], idle_s=flags["idle_s"]
        ),
        tls=tls_context(flags["tls_cert"], flags["tls_key"]),
        run_id=flags["run_id"],
        endpoint=endpoint(flags["endpoint"]),
        is_reporting=flags["telemetry"],
    )


def _place(flags: RolloutsFlags, level: Level) -> tuple[str, str]:
    """Where groups are, for a person and for the store."""
    database = flags["database"]
    if database is None:
        if level is Level.MEMORY:
            return "in memory alone", "sqlite://"
        return f"in {flags['folder']}", sqlite_url(flags["folder"])
    try:
        url = make_url(database)
    except ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "postgresql" or level is Level.MEMORY:
        shown = database if url is None else url.render_as_string()
        raise ValueError(
            f"database is {shown!r} with durability {level.value}; write "
            "postgresql://user@host/name with fast or fsync, or leave it out for a file in --folder"
        )
    if find_spec("psycopg") is None:
        raise ValueError('database needs a driver; pip install "psycopg[binary]"')
    url = url.set(drivername="postgresql+psycopg")
    return f"in {url.render_as_string()}", url.render_as_string(hide_password=False)
