"""The commands of `overwatch-rl` that look at one policy of goodhart: verify, play, saliency.

Owns what they print. Torch is loaded inside the commands.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from overwatch_rl.usage import EVALUATION_SEED, usage_errors

if TYPE_CHECKING:
    from overwatch_rl.algorithms.ppo import PPO
    from overwatch_rl.worlds.goodhart.config import GoodhartConfig


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--steps", type=click.IntRange(1), default=500, show_default=True, help="Steps of the survival."
)
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which fields.")
def verify(folder: Path, steps: int, seed: int) -> None:
    """Check the goodhart policy in FOLDER: does it prefer food, does it live; 1 where it does not."""
    with usage_errors():
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.verification import lines, verify

        policy, config = _kept_goodhart(folder)
        found = verify(player(policy), config, seed=seed, steps=steps)
    click.echo("\n".join(lines(found)))
    sys.exit(0 if found.passed else 1)


def _kept_goodhart(folder: Path) -> "tuple[PPO, GoodhartConfig]":
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
    return policy.policy(spec), goodhart_config(part, dict(policy.settings))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--steps", type=click.IntRange(1), default=200, show_default=True, help="Steps to show.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which field.")
@click.option("--rate", type=click.FloatRange(0.1), default=8.0, show_default=True, help="Steps a second.")
@click.option("--gif", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture instead.")
def play(folder: Path, steps: int, seed: int, rate: float, gif: Path | None) -> None:
    """Show what an agent of the goodhart policy in FOLDER sees and does."""
    with usage_errors():
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.picture import frame, write_gif
        from overwatch_rl.worlds.goodhart.watching import lines, watch

        policy, config = _kept_goodhart(folder)
        moments = watch(player(policy), config, seed=seed, steps=steps)
        if gif is not None:
            write_gif(gif, [frame(moment.view) for moment in moments])
            click.echo(f"wrote {gif}")
            return
        for moment in moments:
            if sys.stdout.isatty():
                click.clear()
                time.sleep(1.0 / rate)
            click.echo("\n".join(lines(moment, config)))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Picture to write, as PNG."
)
@click.option(
    "--of", type=click.Choice(("action", "value")), default="action", show_default=True,
    help="Of the chosen action's log-probability, or of the value.",
)  # fmt: skip
@click.option(
    "--states", type=click.IntRange(1, 4096), default=64, show_default=True, help="States of the mean."
)
@click.option("--steps", type=click.IntRange(0), default=20, show_default=True, help="Moves before them.")
@click.option("--seed", type=int, default=EVALUATION_SEED, show_default=True, help="Which fields.")
def saliency(folder: Path, *, out: Path, of: str, states: int, steps: int, seed: int) -> None:
    """Draw which cells the goodhart policy in FOLDER decides by.

    From left to right: what an agent sees, the weight of each cell there, the mean weight over all states.
    """
    with usage_errors():
        from overwatch_rl.algorithms.saliency import saliency as weigh
        from overwatch_rl.trained import player
        from overwatch_rl.worlds.goodhart.picture import beside, frame, heat, write_picture
        from overwatch_rl.worlds.goodhart.watching import states_of

        policy, config = _kept_goodhart(folder)
        seen = states_of(player(policy), config, states=states, steps=steps, seed=seed)
        weights = weigh(policy, seen, of)
        mean = weights.mean(dim=0)
        write_picture(out, beside([frame(seen.features[0]), heat(weights[0]), heat(mean)]))
    row, column = (place + 1 for place in divmod(int(mean.argmax()), config.view))
    middle = config.view // 2 + 1
    click.echo(
        f"wrote {out}; largest mean weight: row {row}, column {column} (agent: row {middle}, column {middle})"
    )


COMMANDS: Final = (verify, play, saliency)
"""Which `overwatch-rl` has."""
