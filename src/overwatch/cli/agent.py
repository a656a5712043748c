"""`overwatch agent`: tell a run about this machine's GPUs and host, for trainers that do not themselves.

Rules: one process a machine; it tells what the sampler of a trainer would, and ends with a signal.
"""

import os
import signal
import socket
import sys
from queue import SimpleQueue
from typing import Final

import click

from overwatch.cli.errors import warn
from overwatch.cli.interrupts import STATUS
from overwatch.os_signals import heard

CLOSE_S: Final = 10.0


def agent(run_id: str, endpoint: str | None) -> int:
    """Sample until SIGTERM or SIGINT; 1 where not everything was delivered, 130 where SIGINT came."""
    import overwatch.sdk

    over: SimpleQueue[int] = SimpleQueue()
    with heard((signal.SIGTERM, signal.SIGINT), over.put):
        host = os.environ.get("K8S_NODE_NAME") or socket.gethostname()
        run = overwatch.sdk.start(run_id=run_id, role=f"agent-{host}"[:64], rank=0, endpoint=endpoint)
        warn(f"telling run {run_id} about {host}; stop with SIGTERM or ctrl-c")
        number = over.get()
        ended = run.close(CLOSE_S)
    if not ended.delivered:
        click.echo("not everything was delivered; `overwatch sync` does that later", err=True)
    if number == signal.SIGINT:
        return STATUS
    return 0 if ended.delivered else 1


@click.command("agent")
@click.option("--run", "run_id", required=True, metavar="ID", help="The run that the numbers belong to.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; as for trainers without.")
def command(run_id: str, endpoint: str | None) -> None:
    """Tell a run about this machine's GPUs and host, for trainers that do not themselves."""
    from overwatch.sdk.arguments import is_url

    if endpoint is not None and not is_url(endpoint):
        raise click.ClickException(f"endpoint {endpoint!r} is no URL; write e.g. http://127.0.0.1:4318")
    sys.exit(agent(run_id, endpoint))
