"""From flags to what the parts of a replay server are given; the parts validate themselves.

Raises `ValueError` naming the value and the fix. Must not know how anything is served.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import grpc
import msgspec

from overwatch_rl.replay.base import Capacity, TableConfig
from overwatch_rl.replay.limiter import Rate
from overwatch_rl.replay.selectors import Priorities
from overwatch_rl.web.authorisation import Authorisation, read_token
from overwatch_rl.web.process import address, endpoint
from overwatch_rl.web.site import tls_context

YEAR_S: Final = 31_536_000.0
"""The longest of all times that can be set."""


class ReplayFlags(TypedDict):
    """What `overwatch-rl replay-server` was given."""

    listen: str
    table: tuple[str, ...]
    token_file: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    max_message_mib: int
    max_requests: int
    max_wait_s: float
    run_id: str | None
    rank: int
    endpoint: str | None
    telemetry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSettings:
    """Which run the server reports to."""

    run_id: str | None
    endpoint: str | None
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """One server."""

    host: str
    port: int
    """0 for any that is free."""
    authorisation: Authorisation
    tables: tuple[TableConfig, ...]
    most_message_bytes: int
    most_requests: int
    """Answered at a time; streams are among them."""
    most_wait_s: float
    credentials: grpc.ServerCredentials | None
    """`None` for plain connections."""
    tower: TowerSettings | None
    """`None` without telemetry."""


class _Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may follow the name of a table; what is not given is as its kind has it."""

    kind: str = "sequences"
    selector: str | None = None
    remover: str | None = None
    items: int = Capacity().items
    mib: int = 1024
    samples_per_insert: float | None = None
    min_steps: int = 1
    buffer: float | None = None
    alpha: float | None = None
    seed: int | None = None
    lease_s: float = 600.0


_OF_KIND: Final = {"sequences": ("fifo", "refuse"), "steps": ("uniform", "oldest")}
"""Selector and remover where a table names none."""
_GONE: Final = ("durability", "memory_mib")


def replay_settings(flags: ReplayFlags) -> ReplaySettings:
    """Assemble and validate; raises `OSError` where a file cannot be read."""
    host, port = address(flags["listen"])
    token = None if flags["token_file"] is None else read_token(flags["token_file"])
    tables = tuple(table_config(text) for text in flags["table"])
    names = [table.name for table in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not tables or twice:
        raise ValueError(f"table {twice[0]!r} is given twice" if twice else "give one --table or more")
    if not flags["max_wait_s"] <= YEAR_S:
        raise ValueError(f"max-wait-s is {flags['max_wait_s']:g}; use {YEAR_S:g} (a year) or less")
    otlp = endpoint(flags["endpoint"])
    return ReplaySettings(
        host=host,
        port=port,
        authorisation=Authorisation(host, token),
        tables=tables,
        most_message_bytes=flags["max_message_mib"] << 20,
        most_requests=flags["max_requests"],
        most_wait_s=flags["max_wait_s"],
        credentials=_credentials(flags),
        tower=TowerSettings(run_id=flags["run_id"], endpoint=otlp, rank=flags["rank"])
        if flags["telemetry"]
        else None,
    )


def table_config(text: str) -> TableConfig:
    """A table from `NAME[:KEY=VALUE,...]`.

    >>> config = table_config("dqn:kind=steps,selector=prioritised,items=100")
    >>> config.name, config.selector, config.capacity.items
    ('dqn', 'prioritised', 100)
    """
    name, _, rest = text.partition(":")
    if not name or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"table {text!r}: the name is letters, digits, - and _; e.g. experience:items=4096")
    pairs = {key: value for key, _, value in (part.partition("=") for part in rest.split(",") if part)}
    if gone := next((key for key in _GONE if key in pairs), None):
        raise ValueError(
            f"table {text!r}: {gone} is no key any more, as tables are in memory; leave it out. Where "
            "experience must survive its server, give learner and actors --replay redis://HOST:PORT/0"
        )
    try:
        given = msgspec.convert(pairs, _Given, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(_Given))
        raise ValueError(f"table {text!r}: {error}; keys are {known}") from error
    if given.kind not in _OF_KIND:
        raise ValueError(f"table {text!r}: kind {given.kind!r} is none of {', '.join(_OF_KIND)}")
    if given.kind == "sequences" and given.samples_per_insert is not None:
        raise ValueError(f"table {text!r}: samples_per_insert is of steps; sequences are leased once")
    if not 0 < given.lease_s <= YEAR_S:
        raise ValueError(f"table {text!r}: lease_s is above 0 and at most {YEAR_S:g}")
    selector, remover = _OF_KIND[given.kind]
    try:
        return TableConfig(
            name=name,
            kind=given.kind,
            selector=given.selector or selector,
            remover=given.remover or remover,
            capacity=Capacity(items=given.items, bytes=given.mib << 20),
            rate=Rate(
                samples_per_insert=given.samples_per_insert, min_steps=given.min_steps, buffer=given.buffer
            ),
            priorities=Priorities() if given.alpha is None else Priorities(alpha=given.alpha),
            seed=given.seed,
            lease_s=given.lease_s,
        )
    except ValueError as error:
        raise ValueError(f"table {text!r}: {error}") from error


def table_words(config: TableConfig) -> str:
    """What `table_config` makes such a table of steps of."""
    rate = config.rate
    given = {
        "kind": config.kind, "selector": config.selector, "remover": config.remover,
        "items": config.capacity.items, "mib": config.capacity.bytes >> 20,
        "alpha": config.priorities.alpha, "seed": config.seed,
        "samples_per_insert": rate.samples_per_insert, "min_steps": rate.min_steps, "buffer": rate.buffer,
    }  # fmt: skip
    return f"{config.name}:" + ",".join(
        f"{name}={value}" for name, value in given.items() if value is not None
    )


def _credentials(flags: ReplayFlags) -> grpc.ServerCredentials | None:
    """Those of the certificate; with an authority of clients too, these must show one of its."""
    cert, key, clients = flags["tls_cert"], flags["tls_key"], flags["tls_client_ca"]
    if tls_context(cert, key) is None or cert is None or key is None:
        if clients is not None:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        return None
    return grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=None if clients is None else clients.read_bytes(),
        require_client_auth=clients is not None,
    )
