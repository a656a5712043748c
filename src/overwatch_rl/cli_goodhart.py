"""The commands of `overwatch-rl` that look at one policy of goodhart: verify, play.

Owns what they print. Torch is loaded inside the commands.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from overwatch_rl.usage import EVALUATION_SEED, usage_errors

if TYPE_CHECKING:
    from overwatch_rl.worlds.goodhart.config import GoodhartConfig
    from overwatch_rl.worlds.schedules import Act


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--steps", type=click.IntRange(1), default=500, show_default=True, help="Steps of the survival."
)
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which fields.")
def verify(folder: Path, steps: int, seed: int) -> None:
    """Check the goodhart policy in FOLDER: does it prefer food, does it live; 1 where it does not."""
    with usage_errors():
        from overwatch_rl.worlds.goodhart.verification import lines, verify

        act, config = _kept_goodhart(folder)
        found = verify(act, config, seed=seed, steps=steps)
    click.echo("\n".join(lines(found)))
    sys.exit(0 if found.passed else 1)


def _kept_goodhart(folder: Path) -> "tuple[Act, GoodhartConfig]":
    """The newest policy in `folder` and its world; raises `ValueError` when that is another world."""
    from overwatch_rl.trained import load_policy
    from overwatch_rl.worlds import make
    from overwatch_rl.worlds.base import WorldConfig
    from overwatch_rl.worlds.goodhart.config import goodhart_config

    policy = load_policy(folder)
    kind, _, part = policy.world.partition(":")
    if kind != "goodhart":
        raise ValueError(f"{folder} holds a policy of {policy.world}; name one of goodhart")
    spec = make(policy.world, WorldConfig(num_envs=1), policy.settings).spec
    return policy.player(spec), goodhart_config(part, dict(policy.settings))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps to show.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which field.")
@click.option("--rate", type=click.FloatRange(0.1), default=8.0, show_default=True, help="Steps a second.")
@click.option("--gif", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture instead.")
def play(folder: Path, steps: int, seed: int, rate: float, gif: Path | None) -> None:
    """Show what an agent of the goodhart policy in FOLDER sees and does."""
    with usage_errors():
        from overwatch_rl.worlds.goodhart.picture import frame, write_gif
        from overwatch_rl.worlds.goodhart.watching import lines, watch

        act, config = _kept_goodhart(folder)
        moments = watch(act, config, seed=seed, steps=steps)
        if gif is not None:
            write_gif(gif, [frame(moment.view) for moment in moments])
            click.echo(f"wrote {gif}")
            return
        for moment in moments:
            if sys.stdout.isatty():
                click.clear()
                time.sleep(1.0 / rate)
            click.echo("\n".join(lines(moment, config)))


COMMANDS: Final = (verify, play)
"""Which `overwatch-rl` has."""
