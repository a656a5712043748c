"""Commands of services: the rollouts server, the trainer that learns from it, its handlers; the orchestrator.

Rules: torch is loaded inside the commands that need it, after signals are taken; the server never loads it.
"""

from pathlib import Path
from typing import Any

import click

from overwatch_rl.cli.common import (
    PLACE,
    Number,
    alive_option,
    config_option,
    signals,
    stopping,
    usage_errors,
)
from overwatch_rl.cli.options import options_of
from overwatch_rl.orchestrator.config import OrchestratorConfig
from overwatch_rl.rollouts.config import RolloutsConfig
from overwatch_rl.web.authorisation import read_token


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_ROLLOUTS"})
@config_option("OVERWATCH_ROLLOUTS")
@options_of(RolloutsConfig)
@click.pass_context
def rollouts(context: click.Context, /, **flags: Any) -> None:
    """Serve the rollouts API: trajectories in, fair fresh batches out."""
    from sqlalchemy.exc import DBAPIError

    from overwatch_rl.rollouts.server import run

    try:
        with usage_errors():
            config = RolloutsConfig(**flags)
        context.exit(run(config, click.echo))
    except DBAPIError as error:
        why = f"{error.orig}; stop the server that has it, or give another --folder or --database"
        raise click.ClickException(f"the queue {config.place} cannot be used: {why}") from error
    except OSError as error:
        raise click.ClickException(cannot_begin(error, flags["folder"])) from error


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_ORCHESTRATOR"})
@config_option("OVERWATCH_ORCHESTRATOR")
@options_of(OrchestratorConfig)
@click.pass_context
def orchestrator(context: click.Context, /, **flags: Any) -> None:
    """Serve the control of runs: states, heartbeats, commands, artifacts."""
    from sqlalchemy.exc import SQLAlchemyError

    from overwatch_rl.orchestrator.server import run

    try:
        with usage_errors():
            context.exit(run(OrchestratorConfig(**flags), click.echo))
    except SQLAlchemyError as error:
        raise click.ClickException(f"the store cannot be used: {error}; give another --store") from error
    except OSError as error:
        raise click.ClickException(cannot_begin(error, Path(flags["store"]))) from error


def cannot_begin(error: OSError, folder: Path) -> str:
    """What the server cannot use, why, and the fix."""
    from overwatch_rl.web.process import AddressError

    what = error.strerror or str(error)
    if isinstance(error, AddressError):
        return what
    return f"{error.filename or folder}: {what}; give a --folder that this user can write"


@click.command(context_settings={"auto_envvar_prefix": "OVERWATCH_GRPO"})
@config_option("OVERWATCH_GRPO")
@click.option("--updates", type=int, default=80, show_default=True, help="Updates to do.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the base model and of all draws.")
@click.option("--handlers", type=int, default=3, show_default=True, help="Processes that sample.")
@click.option("--groups", type=int, default=32, show_default=True, help="Prompts of a batch.")
@click.option("--group-size", type=int, default=8, show_default=True, help="Answers to each.")
@click.option("--lr", type=Number(), help="Learning rate.")
@click.option("--minibatches", type=int, help="Optimiser steps a pass.")
@click.option("--epochs", type=int, help="Passes over each batch.")
@click.option("--reference-coef", type=Number(), help="Weight of the divergence from the base model.")
@click.option(
    "--max-staleness", type=int, default=1, show_default=True,
    help="Updates by which an answer may be older than the policy that learns from it.",
)  # fmt: skip
@click.option("--base-steps", type=int, help="Supervised steps of the base model.")
@click.option("--width", type=int, help="Of the model.")
@click.option("--least", type=int, help="Digits of the shortest prompt.")
@click.option("--most", type=int, help="Digits of the longest prompt.")
@click.option("--shuffled", is_flag=True, help="A control that must not learn: shuffle advantages in groups.")
@click.option(
    "--fault", metavar="stale-handler@VERSION", help="A handler that keeps its weights from there on."
)
@click.option("--server", metavar="URL", help="A rollouts server that runs; one is started without.")
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Bearer token of it."
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that handlers read weights from.",
)
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of torch's arithmetic.")
@click.option(
    "--peak-flops",
    type=Number(),
    help="Operations a second that the device can do; `mfu` is reported with it.",
)
@click.option("--run-id", help="The run's id; made up without.")
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
@click.option("--telemetry/--no-telemetry", default=True, show_default=True, help="Report to the tower.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for numbers and checkpoints."
)
@click.option(
    "--resume", type=PLACE, metavar="PLACE",
    help="Go on from the newest checkpoint of the run in a folder or at a URL; --updates counts from its "
    "beginning.",
)  # fmt: skip
@click.option("--checkpoint-every", type=int, default=10, show_default=True, help="Updates between two.")
@click.option("--keep", type=int, default=3, show_default=True, help="Newest checkpoints kept.")
@click.option("--log", type=click.Choice(("auto", "text", "json")), default="auto", show_default=True)
@alive_option
def grpo(
    *,
    resume: Path | str | None,
    checkpoint_every: int,
    keep: int,
    log: str,
    alive: Path | None,
    **flags: Any,
) -> None:
    """Train a small language model with GRPO on groups from handlers in other processes."""
    stop = stopping(None, alive)
    with signals(stop):
        with usage_errors():
            from overwatch_rl.assembly import Keeping
            from overwatch_rl.grpo.config import grpo_settings
            from overwatch_rl.grpo.process import run
            from overwatch_rl.grpo.resuming import going_on

            settings, checkpoint = going_on(grpo_settings(flags), resume)
            keeping = Keeping(every=checkpoint_every, keep=keep, run_id=flags["run_id"], log=log)
        with usage_errors():
            run(settings, keeping, checkpoint, stop.outcome)


@click.command("grpo-handler")
@click.option("--server", required=True, metavar="URL", help="The rollouts server.")
@click.option(
    "--weights", required=True, type=click.Path(path_type=Path, file_okay=False),
    help="Folder that the trainer publishes weights into.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Bearer token."
)
@click.option("--name", default="sort", show_default=True, help="Which the server makes unique.")
@click.option("--group-size", type=int, default=8, show_default=True, help="Answers to a prompt.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts and draws.")
@click.option("--fault", metavar="stale-handler@VERSION", help="Keep the weights from there on.")
@click.option("--run-id", help="Report as a part of this run; nothing is reported without.")
@click.option(
    "--rank", type=click.IntRange(0), default=0, show_default=True,
    help="Number of this handler in that run, which no other one has.",
)  # fmt: skip
@click.option("--endpoint", metavar="URL", help="OTLP endpoint; found by itself without.")
def grpo_handler(
    *, server: str, weights: Path, token_file: Path | None, fault: str | None, **given: Any
) -> None:
    """Sample answers for a grpo training until it has all it needs."""
    with usage_errors():
        import torch

        from overwatch_rl.grpo.config import stale_from
        from overwatch_rl.grpo.handler import GrpoHandler, HandlerConfig
        from overwatch_rl.rollouts.calls import CallError

        torch.set_num_threads(1)
        token = None if token_file is None else read_token(token_file)
        since = None if fault is None else stale_from(fault)
        config = HandlerConfig(weights=weights, stale_from=since, **given)
        handler = GrpoHandler(server, config, token=token)
        with signals(handler):
            try:
                handler.run()
            except CallError as error:
                raise click.ClickException(str(error)) from error
