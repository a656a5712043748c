"""What `overwatch-rl verify` and `overwatch-rl play` do with a kept policy of the goodhart world.

Owns their lines and frames; the command prints them. Must not know how a policy is trained.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from overwatch_rl.trained import TrainedPolicy, load_policy
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.cells import MODES
from overwatch_rl.worlds.goodhart.config import GoodhartConfig, goodhart_config
from overwatch_rl.worlds.goodhart.picture import frame, legend, text
from overwatch_rl.worlds.goodhart.verification import directions, starvation, survival
from overwatch_rl.worlds.goodhart.world import Goodhart
from overwatch_rl.worlds.schedules import Act

WORLD: Final = "goodhart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found, as lines, and whether all of it passed."""

    lines: tuple[str, ...]
    passed: bool


def verify(folder: Path, *, steps: int, seed: int) -> Verified:
    """Directions, survival and starvation of the newest policy in `folder`.

    Raises `ValueError` where there is none or it is of another world.
    """
    act, config = _kept(folder)
    towards = directions(act, config)
    starved = starvation(act, config)
    lines = [
        f"directions   {_word(passed=towards.passed)}  {towards.share:.0%} of moves go towards food",
        *(f"  {name:12} {share:4.0%}" for name, share in towards.shares.items()),
        f"starvation   {_word(passed=starved.passed)}  an agent without food lives {starved.expected} steps",
    ]
    for number, group in enumerate(survival(act, config, seed=seed, steps=steps), start=1):
        deaths = ", ".join(f"{count} {cause}" for cause, count in group.deaths.items())
        eaten = group.food + group.poison
        share = f"{group.food / eaten:.0%} of what was eaten was food" if eaten else "nothing was eaten"
        lines.append(
            f"survival {number}   {group.alive} of {group.agents} lived {steps} steps ({deaths}); "
            f"{group.steps:.0f} steps on average; {share}"
        )
    return Verified(lines=tuple(lines), passed=towards.passed and starved.passed)


def watched(folder: Path, *, steps: int, seed: int) -> Iterator[tuple[list[str], np.ndarray]]:
    """What one agent of the newest policy in `folder` sees, step by step: rows of text and a picture."""
    act, config = _kept(folder)
    world = Goodhart(WorldConfig(num_envs=1), config)
    sees_truth = MODES[config.mode].sees_truth
    observation = world.reset(seed)
    head = f"{config.mode}  {legend(sees_truth=True)}"
    status = "begins"
    for number in range(steps):
        view = observation.features[0]
        note = "" if sees_truth else "the agent sees both as interesting"
        yield [f"{head}  {note}", *text(view, sees_truth=True), f"step {number}  {status}"], frame(view)
        step = world.step(act(observation))
        row = {name: float(column[0]) for name, column in step.columns.items()}
        status = f"energy {row['metric']:.1f}  food {row['food']:.0f}  poison {row['poison']:.0f}"
        observation = step.observation


def _kept(folder: Path) -> tuple[Act, GoodhartConfig]:
    policy: TrainedPolicy = load_policy(folder)
    kind, _, part = policy.world.partition(":")
    if kind != WORLD:
        raise ValueError(f"{folder} holds a policy of {policy.world}; name one of {WORLD}")
    config = goodhart_config(part, dict(policy.settings))
    return policy.player(Goodhart(WorldConfig(num_envs=1), config).spec), config


def _word(*, passed: bool) -> str:
    return "passed" if passed else "FAILED"
