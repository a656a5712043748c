"""The options of the servers; what they mean together is checked by the `settings` of each."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from overwatch_rl.cli.common import C, Number

_TLS: Final = (
    click.option(
        "--tls-cert",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="PEM: the certificate to serve HTTPS with, then those between it and its authority.",
    ),
    click.option(
        "--tls-key",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="PEM: its private key.",
    ),
)
_TELEMETRY: Final = (
    click.option("--run-id", help="The run that the server reports to; made up without."),
    click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without."),
    click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower."),
)

YEAR_S: Final = 31_536_000.0
"""The longest of all times that end something: deadlines are whole nanoseconds of 64 bits."""

_OPTIONS: Final = (
    click.option("--listen", default="127.0.0.1:8000", show_default=True, metavar="HOST:PORT"),
    click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("rollouts"),
        show_default=True,
        help="Where groups are kept until they are used.",
    ),
    click.option(
        "--database", metavar="URL", help="postgresql://… instead, for any number of servers over one queue."
    ),
    click.option(
        "--durability",
        type=click.Choice(("memory", "fast", "fsync")),
        default="fsync",
        show_default=True,
        help="What an acknowledged group survives: nothing, the server's death, a power loss.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Bearer token that clients must send; needed where other machines can reach the address.",
    ),
    *_TLS,
    click.option(
        "--max-staleness",
        type=click.IntRange(0),
        default=3,
        show_default=True,
        help="Versions that a group may be old, unless the trainer registers another limit.",
    ),
    click.option(
        "--max-queued-batches",
        type=click.IntRange(1),
        default=64,
        show_default=True,
        help="From so many batches on new groups wait.",
    ),
    click.option(
        "--max-memory-mib", type=click.IntRange(1), default=1024, show_default=True, help="Of groups."
    ),
    click.option(
        "--max-body-mib", type=click.IntRange(1, 1024), default=32, show_default=True, help="Of one request."
    ),
    click.option(
        "--max-connections", type=click.IntRange(1), default=1024, show_default=True, help="Open at a time."
    ),
    click.option(
        "--read-s",
        type=Number(0.01),
        default=60.0,
        show_default=True,
        help="How long the body of a request may take to arrive.",
    ),
    click.option(
        "--idle-s",
        type=Number(0.01),
        default=300.0,
        show_default=True,
        help="When a connection is closed that asks nothing, or does not end the head of its request.",
    ),
    click.option(
        "--lease-s",
        type=Number(1, YEAR_S),
        default=120.0,
        show_default=True,
        help="How long a trainer that acknowledges has a batch.",
    ),
    click.option(
        "--implicit-lease-s",
        type=Number(1, YEAR_S),
        default=600.0,
        show_default=True,
        help="When a batch of a trainer that cannot acknowledge counts as used.",
    ),
    click.option(
        "--env-lease-s",
        type=Number(1, YEAR_S),
        default=60.0,
        show_default=True,
        help="When an environment without a call loses its share, until it calls.",
    ),
    click.option(
        "--ticket-s",
        type=Number(1, YEAR_S),
        default=60.0,
        show_default=True,
        help="The least life of a ticket.",
    ),
    click.option(
        "--retry-s",
        type=Number(0.01, YEAR_S),
        default=1.0,
        show_default=True,
        help="When clients that must wait ask again.",
    ),
    *_TELEMETRY,
)


def _token(role: str, may: str) -> Callable[[C], C]:
    return click.option(
        f"--{role}-token",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help=f"File with the bearer token of who may {may}.",
    )


_ORCHESTRATOR: Final = (
    click.option("--listen", default="127.0.0.1:8200", show_default=True, metavar="HOST:PORT"),
    click.option(
        "--store",
        default="sqlite:///orchestrator/runs.db",
        show_default=True,
        metavar="URL",
        help="Database that runs are kept in, as SQLAlchemy names it.",
    ),
    _token("operator", "create runs and command them"),
    _token("learner", "create runs, beat, obey and register"),
    _token("reader", "look"),
    *_TLS,
    click.option(
        "--heartbeat-s",
        type=Number(0),
        default=5.0,
        show_default=True,
        help="The least time between two heartbeats of a run.",
    ),
    click.option(
        "--stale-s",
        type=Number(0, min_open=True),
        default=45.0,
        show_default=True,
        help="Silence after which a run is stale.",
    ),
    click.option(
        "--unresponsive-s",
        type=Number(0, min_open=True),
        default=135.0,
        show_default=True,
        help="Silence after which it is unresponsive.",
    ),
    click.option(
        "--max-connections", type=click.IntRange(1), default=1024, show_default=True, help="Open at a time."
    ),
    *_TELEMETRY,
)


def options(command: C) -> C:
    """Give the rollouts command all of its, in their order."""
    return _with(command, _OPTIONS)


def orchestrator_options(command: C) -> C:
    """Give the orchestrator's command all of its, in their order."""
    return _with(command, _ORCHESTRATOR)


def _with(command: C, those: Sequence[Callable[[C], C]]) -> C:
    for option in reversed(those):
        command = option(command)
    return command
