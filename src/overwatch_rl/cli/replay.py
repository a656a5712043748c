"""The command of the replay server; what its options mean together is checked by `replay.settings`."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from overwatch_rl.cli.common import Number, config_option, usage_errors

if TYPE_CHECKING:
    from overwatch_rl.replay.settings import ReplayFlags

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("replay-server", context_settings={"auto_envvar_prefix": "OVERWATCH_REPLAY"})
@config_option("OVERWATCH_REPLAY")
@click.option("--listen", default="127.0.0.1:8100", show_default=True, metavar="HOST:PORT")
@click.option(
    "--table", multiple=True, default=("experience",), show_default=True, metavar="NAME[:KEY=VALUE,...]",
    help="A table in memory; may be given again. Keys: kind (sequences, steps), items, mib, remover. Of "
    "sequences: lease_s. Of steps: selector (uniform, prioritised), alpha, seed, samples_per_insert, "
    "min_steps, buffer.",
)  # fmt: skip
@click.option(
    "--token-file", type=_FILE,
    help="Bearer token that clients must send; needed where other machines can reach the address.",
)  # fmt: skip
@click.option(
    "--tls-cert", type=_FILE, help="PEM: the server's certificate, then those between it and its authority."
)
@click.option("--tls-key", type=_FILE, help="PEM: its private key.")
@click.option("--tls-client-ca", type=_FILE, help="PEM: clients must show a certificate of this authority.")
@click.option(
    "--max-message-mib", type=click.IntRange(1, 1024), default=64, show_default=True, help="Of one message."
)
@click.option(
    "--max-requests", type=click.IntRange(1), default=1024, show_default=True,
    help="Calls at a time, streams among them.",
)  # fmt: skip
@click.option(
    "--max-wait-s", type=Number(0.01), default=60.0, show_default=True,
    help="How long a call waits for a table, if it has no earlier deadline.",
)  # fmt: skip
@click.option("--run-id", help="The run that the server reports to; made up without.")
@click.option(
    "--rank", type=click.IntRange(0), default=0, show_default=True,
    help="Number of this server among those of the run, which no other one has.",
)  # fmt: skip
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
@click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower.")
@click.pass_context
def replay_server(context: click.Context, **flags: Unpack["ReplayFlags"]) -> None:
    """Serve experience over gRPC: chunks in from actors, samples and leases out to learners."""
    from overwatch_rl.replay.process import run
    from overwatch_rl.replay.service import Replay
    from overwatch_rl.replay.settings import replay_settings

    try:
        with usage_errors():
            settings = replay_settings(flags)
            replay = Replay(settings.tables)
        context.exit(run(settings, replay, click.echo))
    except OSError as error:
        raise click.ClickException(error.strerror or str(error)) from error
