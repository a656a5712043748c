"""From flags to what each part is given; the parts validate themselves.

Owns the defaults of the command line: a preset a world, sized so that a policy learns in half a minute on two
cores. Raises `ValueError` naming the value and the fix.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import torch

from overwatch.extras import TENSORBOARD
from overwatch_rl.algorithms.dqn import DQNConfig
from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.algorithms.table import ALGORITHMS, NAMES, AlgorithmConfig, Kind, kind_of
from overwatch_rl.settings import changed
from overwatch_rl.telemetry.tower import TowerConfig
from overwatch_rl.training.distributed import Place
from overwatch_rl.training.trainer import TrainerConfig
from overwatch_rl.worlds import is_shaped, modes_of
from overwatch_rl.worlds.base import WorldConfig

DEFAULT_UPDATES: Final = 30
C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(Generic[C]):
    """What a world is trained with where nothing else is given."""

    envs: int = 32
    steps: int = 60
    device: str = "auto"
    learned: C
    """Settings of the algorithm."""


DQN_PRESET: Final = Preset(envs=4, steps=64, device="cpu", learned=DQNConfig())
"""What DQN is trained with in any world."""
PRESETS: Final[dict[str, Preset[PPOConfig]]] = {
    "morphogenesis": Preset(device="cpu", learned=PPOConfig(logit_scale=1.0, entropy_coef=0.005)),
    "goodhart": Preset(
        envs=192,
        steps=128,
        learned=PPOConfig(
            network="conv",
            logit_scale=1.0,
            learning_rate=3e-4,
            entropy_coef=0.02,
            value_clip=0.2,
            popart=True,
            gamma=0.99,
        ),
    ),
    "goodhart:small": Preset(
        envs=64,
        steps=64,
        learned=PPOConfig(
            logit_scale=1.0,
            learning_rate=1e-3,
            entropy_coef=0.02,
            popart=True,
            gamma=0.99,
        ),
    ),
    "gym": Preset(
        envs=8,
        steps=128,
        learned=PPOConfig(
            logit_scale=1.0,
            learning_rate=1e-3,
            entropy_coef=0.01,
            gamma=0.99,
        ),
    ),
}
"""Of PPO, by the whole name of a world, else by the part before the colon."""


def preset_of(world: str, algorithm: str) -> Preset[Any]:
    """What an algorithm is trained with in a world; raises `ValueError` where there is no such algorithm."""
    kind = kind_of(algorithm)
    found: Preset[Any] | None = DQN_PRESET
    if kind.option == "ppo":
        found = PRESETS.get(world) or PRESETS.get(world.partition(":")[0])
    if found is None:
        return Preset(learned=kind.config())
    shared = {one.name for one in fields(kind.config)} & {one.name for one in fields(found.learned)}
    return replace(found, learned=kind.config(**{name: getattr(found.learned, name) for name in shared}))


class TrainFlags(TypedDict):
    """What `overwatch-rl train` was given; `None` where a flag was not typed."""

    world: str
    algorithm: str
    envs: int | None
    slots: int | None
    mode: str | None
    settings: tuple[str, ...]
    own: dict[str, tuple[str, ...]]
    """`NAME=VALUE` of settings that are an algorithm's own, by the algorithm."""
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
    alive: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """One training run."""

    world_name: str
    world: WorldConfig
    world_settings: Mapping[str, object]
    algorithm: str
    """What trains: a row of `algorithms.table`."""
    learned: AlgorithmConfig
    """Its settings."""
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
    learned = _learned(flags, kind, preset.learned)
    envs = preset.envs if flags["envs"] is None else flags["envs"]
    steps = preset.steps if flags["steps"] is None else flags["steps"]
    own = _discounted(flags, learned.gamma)
    world = WorldConfig(num_envs=envs, device=device_named(flags["device"] or preset.device))
    bound = kind.rows_at_least
    is_whole = kind.has_memory(learned)
    if bound is not None and (envs if is_whole else steps * envs) < (least := getattr(learned, bound)):
        what, fix = ("whole envs", "envs") if is_whole else (f"steps of {envs} envs", "steps or envs")
        count = envs if is_whole else steps
        raise ValueError(f"{count} {what} are too few for {least} {bound}; use more {fix}")
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
        algorithm=flags["algorithm"],
        learned=learned,
        trainer=TrainerConfig(updates=updates, steps=steps, seed=flags["seed"]),
        seed=flags["seed"],
        tower=tower if flags["telemetry"] else None,
        is_planned=flags["plan"] == AUTO and not kind.is_replayed,
        threads=flags["threads"],
        seconds=flags["seconds"],
        view=flags["view"],
        out=flags["out"],
        tensorboard=_tensorboard(flags),
        described=_described(flags, learned, world, steps),
    )


AUTO: Final = "auto"
"""The plan that is chosen by measurement."""
ALL: Final = "all"
"""The mode that stands for every mode of a world."""
_WORDS: Final = {"settings": "--set"}
"""Flags whose word on the command line is not their name."""
_HIDDEN: Final = (
    "run_id", "endpoint", "telemetry", "view", "out", "tensorboard", "settings", "slots", "mode", "own",
)  # fmt: skip
"""Flags that decide no number, or are parts of others."""
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
        own["alive"] = None if flags["alive"] is None else flags["alive"] / mode
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
        elif isinstance(value, dict):
            words += [part for key, many in value.items() for one in many for part in (f"--{key}", one)]
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


def _learned(flags: TrainFlags, kind: Kind, preset: AlgorithmConfig) -> AlgorithmConfig:
    """The algorithm's settings; raises `ValueError` for one that is wrong, or is another algorithm's."""
    name, given = kind.option, cast("dict[str, Any]", flags)
    others = [flag for row in ALGORITHMS.values() for flag in row.flags if flag not in kind.flags]
    strange = [flag for flag in others if given[flag] is not None]
    strange += [other for other, words in flags["own"].items() if words and other != name]
    if strange:
        raise ValueError(
            f"--{strange[0].replace('_', '-')} is a setting of another algorithm than {name}; leave it out"
        )
    typed = {NAMES.get(flag, flag): given[flag] for flag in kind.flags if given[flag] is not None}
    plain = named_values(f"--{name}", flags["own"].get(name, ()))
    return changed(replace(preset, **typed), plain, name)


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


def _described(flags: TrainFlags, learned: AlgorithmConfig, world: WorldConfig, steps: int) -> dict[str, str]:
    """Every value that decided the run, as words."""
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    for name, words in flags["own"].items():
        own |= named_values(f"--{name}", words)
    used: dict[str, object] = {
        "envs": world.num_envs,
        "device": world.device,
        "steps": steps,
        "lr": learned.learning_rate,
    }
    used |= asdict(learned)
    if flags["plan"] == AUTO and used.get("network") in ("conv", "conv_recurrent"):
        used["precision"] = "bf16"  # the plan may choose it, and what is judged by precision must allow it
    shown = {name: value for name, value in flags.items() if name not in _HIDDEN} | own | used
    return {name: str(value) for name, value in shown.items()}
