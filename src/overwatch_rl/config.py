"""From flags to what each part is told; the parts validate themselves.

Owns the defaults of the command line, sized so that a policy learns in half a minute on two cores. Raises
`ValueError` naming the value and the fix.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from overwatch_rl.algos.ppo import PPOConfig
from overwatch_rl.algos.returns import ReturnsConfig
from overwatch_rl.envs.base import WorldConfig
from overwatch_rl.telemetry import TowerConfig
from overwatch_rl.trainer import TrainerConfig

DEFAULT_UPDATES = 30


class TrainFlags(TypedDict):
    """What `overwatch-rl train` was given; `None` where a flag was not typed."""

    world: str
    envs: int
    slots: int
    updates: int | None
    seconds: float | None
    seed: int
    lr: float
    epochs: int
    minibatches: int
    steps: int
    target_kl: float | None
    threads: int
    run_id: str | None
    endpoint: str | None
    telemetry: bool
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """One training run."""

    world_name: str
    world: WorldConfig
    trainer: TrainerConfig
    tower: TowerConfig | None
    """`None` without telemetry."""
    threads: int
    """Threads of torch's arithmetic."""
    seconds: float | None
    """End after this long; `None` for no limit."""
    out: Path | None
    """Folder for the trainer's own numbers and the policy; `None` writes nothing."""
    described: dict[str, str]
    """The flags and what decides how numbers are judged, as words, shown with the run."""


def train_settings(flags: TrainFlags) -> TrainSettings:
    """Assemble and validate; without `updates` and `seconds` it is the default number of updates."""
    updates = flags["updates"]
    if updates is None and flags["seconds"] is None:
        updates = DEFAULT_UPDATES
    if flags["threads"] < 1:
        raise ValueError(f"threads is {flags['threads']}; use 1 or more")
    if flags["seconds"] is not None and not flags["seconds"] > 0:
        raise ValueError(f"seconds is {flags['seconds']}; use a number above 0")
    tower = TowerConfig(run_id=flags["run_id"], endpoint=flags["endpoint"], updates=updates)
    ppo = PPOConfig(
        learning_rate=flags["lr"],
        epochs=flags["epochs"],
        minibatches=flags["minibatches"],
        target_kl=flags["target_kl"],
    )
    hidden = ("run_id", "endpoint", "telemetry", "out")
    described = {name: str(value) for name, value in flags.items() if name not in hidden}
    return TrainSettings(
        world_name=flags["world"],
        world=WorldConfig(num_envs=flags["envs"], num_slots=flags["slots"]),
        trainer=TrainerConfig(
            updates=updates, steps=flags["steps"], seed=flags["seed"], returns=ReturnsConfig(), ppo=ppo
        ),
        tower=tower if flags["telemetry"] else None,
        threads=flags["threads"],
        seconds=flags["seconds"],
        out=flags["out"],
        described=described | {"max_grad_norm": str(ppo.max_grad_norm)},
    )
