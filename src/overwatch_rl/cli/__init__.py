"""The `overwatch-rl` command: train policies, compare them, and serve what trainers learn from.

Owns the table of commands. Must not know what they do.
"""

from typing import Final

import click

from overwatch_rl.cli.checkpoints import checkpoints
from overwatch_rl.cli.common import Stop
from overwatch_rl.cli.learning import actor, cluster, learner
from overwatch_rl.cli.replay import replay_server
from overwatch_rl.cli.services import grpo, grpo_handler, orchestrator, rollouts
from overwatch_rl.cli.training import evaluate, play, saliency, sync_points, train, verify

__all__ = ["Stop", "main"]

COMMANDS: Final = (
    train,
    evaluate,
    verify,
    play,
    saliency,
    checkpoints,
    rollouts,
    replay_server,
    orchestrator,
    learner,
    actor,
    cluster,
    grpo,
    grpo_handler,
    sync_points,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Train policies, compare them, and serve what trainers learn from."""


for command in COMMANDS:
    main.add_command(command)
