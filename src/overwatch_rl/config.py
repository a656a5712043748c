"""From flags to what each part is given; the parts validate themselves.

Owns the defaults of the command line: a preset a world, sized so that a policy learns in half a minute on two
cores. Raises `ValueError` naming the value and the fix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypedDict, cast

from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.algorithms.returns import ReturnsConfig
from overwatch_rl.telemetry.tower import TowerConfig
from overwatch_rl.training.distributed import Place
from overwatch_rl.training.trainer import TrainerConfig
from overwatch_rl.worlds.base import WorldConfig

DEFAULT_UPDATES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a world is trained with where nothing else is given."""

    envs: int = 32
    steps: int = 60
    ppo: PPOConfig = field(default_factory=PPOConfig)


PRESETS: Final[dict[str, Preset]] = {
    "morphogenesis": Preset(),
    "goodhart": Preset(
        envs=192,
        steps=128,
        ppo=PPOConfig(
            network="conv",
            learning_rate=3e-4,
            entropy_coef=0.02,
            value_clip=0.2,
            popart=True,
            returns=ReturnsConfig(gamma=0.99, lam=0.95),
        ),
    ),
    "gym": Preset(
        envs=8,
        steps=128,
        ppo=PPOConfig(learning_rate=1e-3, entropy_coef=0.01, returns=ReturnsConfig(gamma=0.99, lam=0.95)),
    ),
}
"""By the part of a world's name before the colon."""


class TrainFlags(TypedDict):
    """What `overwatch-rl train` was given; `None` where a flag was not typed."""

    world: str
    envs: int | None
    slots: int | None
    mode: str | None
    settings: tuple[str, ...]
    updates: int | None
    seconds: float | None
    seed: int
    lr: float | None
    epochs: int | None
    minibatches: int | None
    steps: int | None
    network: str | None
    target_kl: float | None
    threads: int
    device: str
    run_id: str | None
    endpoint: str | None
    telemetry: bool
    out: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """One training run."""

    world_name: str
    world: WorldConfig
    world_settings: Mapping[str, object]
    ppo: PPOConfig
    trainer: TrainerConfig
    seed: int
    """Of weights and the order of minibatches, which all ranks share; `trainer.seed` is the rank's own."""
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
    preset = PRESETS.get(flags["world"].partition(":")[0], Preset())
    ppo = _ppo(flags, preset.ppo)
    envs = preset.envs if flags["envs"] is None else flags["envs"]
    steps = preset.steps if flags["steps"] is None else flags["steps"]
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    world = WorldConfig(num_envs=envs, device=flags["device"])
    if steps * envs < ppo.minibatches:
        raise ValueError(
            f"{steps} steps of {envs} envs are too few for {ppo.minibatches} minibatches; "
            "use more steps or envs"
        )
    tower = TowerConfig(
        run_id=flags["run_id"], endpoint=flags["endpoint"], updates=updates, lane=flags["device"]
    )
    return TrainSettings(
        world_name=flags["world"],
        world=world,
        world_settings=own,
        ppo=ppo,
        trainer=TrainerConfig(updates=updates, steps=steps, seed=flags["seed"]),
        seed=flags["seed"],
        tower=tower if flags["telemetry"] else None,
        threads=flags["threads"],
        seconds=flags["seconds"],
        out=flags["out"],
        described=_described(flags, ppo, envs, steps),
    )


def of_rank(settings: TrainSettings, here: Place) -> TrainSettings:
    """As one of several ranks trains: on its own device, in worlds of its own; the first alone writes."""
    device = here.device(settings.world.device)
    return replace(
        settings,
        world=replace(settings.world, device=device),
        trainer=replace(settings.trainer, seed=here.seed(settings.seed)),
        tower=None if settings.tower is None else replace(settings.tower, lane=device),
        out=settings.out if here.is_first else None,
    )


def world_settings(slots: int | None, mode: str | None, words: tuple[str, ...]) -> dict[str, object]:
    """Settings of one world from its own flags and from `NAME=VALUE`."""
    own: dict[str, object] = {
        name: value for name, value in (("slots", slots), ("mode", mode)) if value is not None
    }
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set {word!r} has no value; write NAME=VALUE")
        own[name] = value
    return own


def _ppo(flags: TrainFlags, preset: PPOConfig) -> PPOConfig:
    given = {
        "network": flags["network"],
        "learning_rate": flags["lr"],
        "epochs": flags["epochs"],
        "minibatches": flags["minibatches"],
        "target_kl": flags["target_kl"],
    }
    typed = {name: value for name, value in given.items() if value is not None}
    return replace(preset, **cast("Any", typed))


def _described(flags: TrainFlags, ppo: PPOConfig, envs: int, steps: int) -> dict[str, str]:
    """Every value that decided the run, as words."""
    hidden = ("run_id", "endpoint", "telemetry", "out", "settings", "slots", "mode")
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    used = {
        "envs": envs,
        "steps": steps,
        "lr": ppo.learning_rate,
        "epochs": ppo.epochs,
        "minibatches": ppo.minibatches,
        "network": ppo.network,
        "max_grad_norm": ppo.max_grad_norm,
        "gamma": ppo.returns.gamma,
        "gae_lambda": ppo.returns.lam,
        "clip": ppo.clip,
        "entropy_coef": ppo.entropy_coef,
    }
    shown = {name: value for name, value in flags.items() if name not in hidden} | own | used
    return {name: str(value) for name, value in shown.items()}
