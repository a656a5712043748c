"""From flags to what each part is given; the parts validate themselves.

Owns the defaults of the command line: a preset a world, sized so that a policy learns in half a minute on two
cores. Raises `ValueError` naming the value and the fix.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypedDict, assert_never, cast

import torch

from overwatch.extras import TENSORBOARD
from overwatch_rl.algorithms.dqn import DQNConfig
from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.algorithms.returns import ReturnsConfig
from overwatch_rl.algorithms.table import AlgorithmConfig, kind_of
from overwatch_rl.settings import changed
from overwatch_rl.telemetry.tower import TowerConfig
from overwatch_rl.training.distributed import Place
from overwatch_rl.training.trainer import TrainerConfig
from overwatch_rl.worlds import is_shaped, modes_of
from overwatch_rl.worlds.base import WorldConfig

DEFAULT_UPDATES: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a world is trained with where nothing else is given."""

    envs: int = 32
    steps: int = 60
    device: str = "auto"
    ppo: PPOConfig = field(default_factory=PPOConfig)
    dqn: DQNConfig | None = None
    """Settings of DQN, where that trains instead."""

    @property
    def algorithm(self) -> AlgorithmConfig:
        """Settings of what trains."""
        return self.ppo if self.dqn is None else self.dqn


DQN_PRESET: Final = Preset(envs=4, steps=64, device="cpu", dqn=DQNConfig())
"""What DQN is trained with in any world."""
PRESETS: Final[dict[str, Preset]] = {
    "morphogenesis": Preset(device="cpu"),
    "goodhart": Preset(
        envs=192,
        steps=128,
        ppo=PPOConfig(
            network="conv",
            logit_scale=1.0,
            learning_rate=3e-4,
            entropy_coef=0.02,
            value_clip=0.2,
            popart=True,
            returns=ReturnsConfig(gamma=0.99, lam=0.95),
        ),
    ),
    "goodhart:small": Preset(
        envs=64,
        steps=64,
        ppo=PPOConfig(
            logit_scale=1.0,
            learning_rate=1e-3,
            entropy_coef=0.02,
            popart=True,
            returns=ReturnsConfig(gamma=0.99, lam=0.95),
        ),
    ),
    "gym": Preset(
        envs=8,
        steps=128,
        ppo=PPOConfig(
            logit_scale=1.0,
            learning_rate=1e-3,
            entropy_coef=0.01,
            returns=ReturnsConfig(gamma=0.99, lam=0.95),
        ),
    ),
}
"""By the whole name of a world, else by the part before the colon."""


def preset_of(world: str, algorithm: str) -> Preset:
    """What an algorithm is trained with in a world."""
    if algorithm == "dqn":
        return DQN_PRESET
    return PRESETS.get(world) or PRESETS.get(world.partition(":")[0], Preset())


class TrainFlags(TypedDict):
    """What `overwatch-rl train` was given; `None` where a flag was not typed."""

    world: str
    algorithm: str
    envs: int | None
    slots: int | None
    mode: str | None
    settings: tuple[str, ...]
    ppo: tuple[str, ...]
    dqn: tuple[str, ...]
    updates: int | None
    seconds: float | None
    seed: int
    lr: float | None
    epochs: int | None
    minibatches: int | None
    steps: int | None
    network: str | None
    target_kl: float | None
    gamma: float | None
    anneal_updates: int | None
    normalise_observations: bool | None
    plan: str
    threads: int
    device: str | None
    run_id: str | None
    endpoint: str | None
    telemetry: bool
    view: bool
    out: Path | None
    tensorboard: str | None
    """Empty where the flag came without a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """One training run."""

    world_name: str
    world: WorldConfig
    world_settings: Mapping[str, object]
    ppo: PPOConfig
    dqn: DQNConfig | None
    """`None` where PPO trains."""
    trainer: TrainerConfig
    seed: int
    """Of weights and the order of minibatches, which all ranks share; `trainer.seed` is the rank's own."""
    tower: TowerConfig | None
    """`None` without telemetry."""
    is_planned: bool
    """Whether the plan of computing is chosen by measurement before the first update."""
    threads: int
    """Threads of torch's arithmetic."""
    seconds: float | None
    """End after this long; `None` for no limit."""
    view: bool
    """Whether what the first environment sees is logged."""
    out: Path | None
    """Folder for the trainer's own numbers and the policy; `None` writes nothing."""
    tensorboard: Path | None
    """Folder for event files; `None` writes none."""
    described: dict[str, str]
    """The flags and what decides how numbers are judged, as words, shown with the run."""

    @property
    def algorithm(self) -> tuple[str, AlgorithmConfig]:
        """What trains: a row of `algorithms.table`, and its settings."""
        return ("ppo", self.ppo) if self.dqn is None else ("dqn", self.dqn)


def train_settings(flags: TrainFlags) -> TrainSettings:
    """Assemble and validate; without `updates` and `seconds` it is the default number of updates."""
    updates = flags["updates"]
    if updates is None and flags["seconds"] is None:
        updates = DEFAULT_UPDATES
    if flags["threads"] < 1:
        raise ValueError(f"threads is {flags['threads']}; use 1 or more")
    if flags["seconds"] is not None and not flags["seconds"] > 0:
        raise ValueError(f"seconds is {flags['seconds']}; use a number above 0")
    kind = kind_of(flags["algorithm"])
    preset = preset_of(flags["world"], flags["algorithm"])
    ppo, dqn = _ppo(flags, preset.ppo), _dqn(flags, preset.dqn)
    envs = preset.envs if flags["envs"] is None else flags["envs"]
    steps = preset.steps if flags["steps"] is None else flags["steps"]
    own = _discounted(flags, kind.discount(ppo if dqn is None else dqn))
    world = WorldConfig(num_envs=envs, device=device_named(flags["device"] or preset.device))
    if dqn is None and steps * envs < ppo.minibatches:
        raise ValueError(
            f"{steps} steps of {envs} envs are too few for {ppo.minibatches} minibatches; "
            "use more steps or envs"
        )
    tower = TowerConfig(
        run_id=flags["run_id"],
        endpoint=flags["endpoint"],
        algo=flags["algorithm"],
        updates=updates,
        lane=world.device,
    )
    return TrainSettings(
        world_name=flags["world"],
        world=world,
        world_settings=own,
        ppo=ppo,
        dqn=dqn,
        trainer=TrainerConfig(updates=updates, steps=steps, seed=flags["seed"]),
        seed=flags["seed"],
        tower=tower if flags["telemetry"] else None,
        is_planned=flags["plan"] == AUTO and dqn is None,
        threads=flags["threads"],
        seconds=flags["seconds"],
        view=flags["view"],
        out=flags["out"],
        tensorboard=_tensorboard(flags),
        described=_described(flags, ppo if dqn is None else dqn, world, steps),
    )


AUTO: Final = "auto"
"""The plan that is chosen by measurement."""
ALL: Final = "all"
"""The mode that stands for every mode of a world."""
_RETURNS: Final = "returns."
"""How names of what estimates advantages begin."""
_OF_PPO: Final = (
    "epochs", "minibatches", "network", "target_kl", "anneal_updates", "normalise_observations", "ppo",
)  # fmt: skip
"""Flags of settings that only PPO has."""
_WORDS: Final = {"settings": "--set"}
"""Flags whose word on the command line is not their name."""
_SWITCHES: Final = ("telemetry", "normalise_observations")
"""Flags with a word for no."""


def mode_commands(flags: TrainFlags) -> list[tuple[str, TrainFlags, list[str]]]:
    """For each mode that is asked for: its name, its flags, and the arguments of a process that trains it.

    Each has a run and a folder of its own, named after the mode. `ValueError` for a world without modes.
    """
    modes = modes_of(flags["world"])
    if not modes:
        raise ValueError(f"world {flags['world']!r} has no modes; leave --mode and --dashboard out")
    if flags["mode"] not in (None, ALL, *modes):
        raise ValueError(f"mode is {flags['mode']!r}; use one of {ALL}, {', '.join(modes)}")
    wanted = modes if flags["mode"] in (None, ALL) else (str(flags["mode"]),)
    found = []
    for mode in wanted:
        own = flags.copy()
        own["mode"], own["view"] = mode, True
        own["run_id"] = None if flags["run_id"] is None else f"{flags['run_id']}-{mode}"
        own["out"] = None if flags["out"] is None else flags["out"] / mode
        own["tensorboard"] = flags["tensorboard"] and str(Path(flags["tensorboard"]) / mode)
        found.append((mode, own, _arguments(own)))
    return found


def _arguments(flags: TrainFlags) -> list[str]:
    """The command line that gives these flags."""
    words = ["train"]
    for name, value in flags.items():
        word = _WORDS.get(name, f"--{name.replace('_', '-')}")
        if name in _SWITCHES:
            words += [] if value is None else [word if value else word.replace("--", "--no-")]
        elif isinstance(value, bool):
            words += [word] if value else []
        elif isinstance(value, tuple):
            words += [part for one in value for part in (word, str(one))]
        elif value is not None:
            words += [word, str(value)]
    return words


def _tensorboard(flags: TrainFlags) -> Path | None:
    """Where event files go; raises `ValueError` without --out, `ModuleNotFoundError` without the package."""
    given = flags["tensorboard"]
    if given is None:
        return None
    if flags["out"] is None:
        raise ValueError("--tensorboard needs --out FOLDER: one process writes the files of both")
    if TENSORBOARD.missing:
        raise ModuleNotFoundError(TENSORBOARD.need, name=TENSORBOARD.missing[0])
    return Path(given) if given else flags["out"] / "tensorboard"


def device_named(name: str) -> str:
    """The device to compute on; `auto` is a GPU where torch sees one.

    AMD's GPUs are `cuda` to a torch that is built for ROCm. Raises `ValueError` for one that is not there.
    """
    count = torch.cuda.device_count()
    if name == "auto":
        return "cuda" if count else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"device is {name!r}; use auto, cpu, cuda or cuda:NUMBER")
    if kind == "cuda" and int(number or 0) >= count:
        raise ValueError(f"device is {name!r}, and torch sees {count} GPUs; use cpu or another number")
    return name


def of_rank(settings: TrainSettings, here: Place) -> TrainSettings:
    """As one of several ranks trains: on its own device, in worlds of its own; the first alone writes."""
    device = here.device(settings.world.device)
    return replace(
        settings,
        world=replace(settings.world, device=device),
        trainer=replace(settings.trainer, seed=here.seed(settings.seed)),
        tower=None if settings.tower is None else replace(settings.tower, lane=device),
        out=settings.out if here.is_first else None,
        tensorboard=settings.tensorboard if here.is_first else None,
    )


def world_settings(slots: int | None, mode: str | None, words: tuple[str, ...]) -> dict[str, object]:
    """Settings of one world from its own flags and from `NAME=VALUE`."""
    own: dict[str, object] = {
        name: value for name, value in (("slots", slots), ("mode", mode)) if value is not None
    }
    return own | named_values("--set", words)


def named_values(flag: str, words: tuple[str, ...]) -> dict[str, str]:
    """What `flag` was given as `NAME=VALUE`; `ValueError` where there is no value."""
    own = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{flag} {word!r} has no value; write NAME=VALUE")
        own[name] = value
    return own


def _ppo(flags: TrainFlags, preset: PPOConfig) -> PPOConfig:
    given = {
        "network": flags["network"],
        "learning_rate": flags["lr"],
        "epochs": flags["epochs"],
        "minibatches": flags["minibatches"],
        "target_kl": flags["target_kl"],
        "anneal_updates": flags["anneal_updates"],
        "normalise_observations": flags["normalise_observations"],
        "returns": None if flags["gamma"] is None else replace(preset.returns, gamma=flags["gamma"]),
    }
    typed: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    own = named_values("--ppo", flags["ppo"])
    if "returns" in own:
        raise ValueError(f"ppo.returns is {own['returns']!r}; write returns.gamma or returns.lam")
    estimating = {name: own.pop(name) for name in list(own) if name.startswith(_RETURNS)}
    if estimating:
        read = {name.removeprefix(_RETURNS): value for name, value in estimating.items()}
        typed["returns"] = changed(preset.returns, read, "ppo.returns")
    return changed(replace(preset, **cast("Any", typed)), own, "ppo")


def _dqn(flags: TrainFlags, preset: DQNConfig | None) -> DQNConfig | None:
    """`None` where PPO trains; raises `ValueError` for a flag of the other algorithm."""
    given = cast("dict[str, object]", flags)
    for name in ("dqn",) if preset is None else _OF_PPO:
        if given[name] not in (None, ()):
            raise ValueError(
                f"--{name.replace('_', '-')} is a setting of another algorithm than {flags['algorithm']}; "
                "leave it out"
            )
    if preset is None:
        return None
    typed = {"learning_rate": flags["lr"], "gamma": flags["gamma"]}
    own: dict[str, object] = {name: value for name, value in typed.items() if value is not None}
    return changed(preset, own | named_values("--dqn", flags["dqn"]), "dqn")


def _discounted(flags: TrainFlags, gamma: float) -> dict[str, object]:
    """The world's own settings; one that is shaped by a potential is given the learner's discount.

    Raises `ValueError` where it was given another: then the shaping would move the optimum.
    """
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    if not is_shaped(flags["world"]):
        return own
    given = str(own.get("gamma", gamma))
    with contextlib.suppress(ValueError):
        if float(given) == gamma:
            return own | {"gamma": gamma}
    raise ValueError(
        f"gamma of {flags['world']} is {given} and the learner's is {gamma}; give --gamma alone, both take it"
    )


def _described(
    flags: TrainFlags, algorithm: AlgorithmConfig, world: WorldConfig, steps: int
) -> dict[str, str]:
    """Every value that decided the run, as words."""
    hidden = (
        "run_id",
        "endpoint",
        "telemetry",
        "view",
        "out",
        "tensorboard",
        "settings",
        "slots",
        "mode",
        "ppo",
        "dqn",
    )
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    own |= named_values("--ppo", flags["ppo"]) | named_values("--dqn", flags["dqn"])
    used: dict[str, object] = {
        "envs": world.num_envs,
        "device": world.device,
        "steps": steps,
        "lr": algorithm.learning_rate,
    }
    match algorithm:
        case PPOConfig():
            used |= _of_ppo(algorithm)
        case DQNConfig():
            used |= asdict(algorithm)
        case _:
            assert_never(algorithm)
    if flags["plan"] == AUTO and used.get("network") == "conv":
        used["precision"] = "bf16"  # the plan may choose it, and what is judged by precision must allow it
    shown = {name: value for name, value in flags.items() if name not in hidden} | own | used
    return {name: str(value) for name, value in shown.items()}


def _of_ppo(ppo: PPOConfig) -> dict[str, object]:
    return {
        "epochs": ppo.epochs,
        "minibatches": ppo.minibatches,
        "network": ppo.network,
        "max_grad_norm": ppo.max_grad_norm,
        "gamma": ppo.returns.gamma,
        "anneal_updates": ppo.anneal_updates,
        "normalise_observations": ppo.normalise_observations,
        "gae_lambda": ppo.returns.lam,
        "clip": ppo.clip,
        "entropy_coef": ppo.entropy_coef,
    }
