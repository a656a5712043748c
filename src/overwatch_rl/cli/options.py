"""The options of `overwatch-rl rollouts`; what they mean together is checked by `settings`."""

from pathlib import Path
from typing import Final

import click

from overwatch_rl.cli.common import C

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
        "--max-disk-mib", type=click.IntRange(1), default=4096, show_default=True, help="Of the folder."
    ),
    click.option(
        "--max-body-mib", type=click.IntRange(1, 1024), default=32, show_default=True, help="Of one request."
    ),
    click.option(
        "--max-connections", type=click.IntRange(1), default=1024, show_default=True, help="Open at a time."
    ),
    click.option(
        "--read-s",
        type=click.FloatRange(0.01),
        default=60.0,
        show_default=True,
        help="How long the body of a request may take to arrive.",
    ),
    click.option(
        "--idle-s",
        type=click.FloatRange(0.01),
        default=300.0,
        show_default=True,
        help="When a connection is closed that asks nothing, or does not end the head of its request.",
    ),
    click.option(
        "--lease-s",
        type=click.FloatRange(1),
        default=120.0,
        show_default=True,
        help="How long a trainer that acknowledges has a batch.",
    ),
    click.option(
        "--implicit-lease-s",
        type=click.FloatRange(1),
        default=600.0,
        show_default=True,
        help="When a batch of a trainer that cannot acknowledge counts as used.",
    ),
    click.option(
        "--env-lease-s",
        type=click.FloatRange(1),
        default=60.0,
        show_default=True,
        help="When an environment without a call loses its share, until it calls.",
    ),
    click.option(
        "--ticket-s",
        type=click.FloatRange(1),
        default=60.0,
        show_default=True,
        help="The least life of a ticket.",
    ),
    click.option(
        "--retry-s",
        type=click.FloatRange(0.01),
        default=1.0,
        show_default=True,
        help="When clients that must wait ask again.",
    ),
    click.option("--run-id", help="The run that the server reports to; made up without."),
    click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without."),
    click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower."),
)


def options(command: C) -> C:
    """Give a command all of them, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
