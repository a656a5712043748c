"""What a run is kept as, and how one goes on from a checkpoint.

Rules: what decides the numbers is the checkpoint's; a flag that names another value is an error, not a silent
choice. Where a run is kept, how long it goes on and where it reports to may differ; device, threads and
versions may too, and that is reported, since the numbers are then equal to rounding only.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import torch

from overwatch.objects.store import is_remote
from overwatch_rl.algorithms.common import Plan
from overwatch_rl.algorithms.table import NAMES, kind_of
from overwatch_rl.algorithms.table import kept as kept_algorithm
from overwatch_rl.checkpoints.manifest import FOLDER, State
from overwatch_rl.checkpoints.reading import Checkpoint, find_checkpoint
from overwatch_rl.config import TrainFlags, TrainSettings, named_values, train_settings, world_settings
from overwatch_rl.training.keeper import position_of
from overwatch_rl.training.trainer import Trainer

_LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "world": ("world",),
    "envs": ("envs",),
    "steps": ("steps",),
    "seed": ("seed",),
}
"""Flag to its place in the configuration: what may not differ."""


def config_of(settings: TrainSettings) -> dict[str, object]:
    """The configuration of a run, as it lies in checkpoints; settings lie under the algorithm's name."""
    return {
        "world": settings.world_name,
        "envs": settings.world.num_envs,
        "settings": dict(settings.world_settings),
        settings.algorithm: asdict(settings.learned),
        "steps": settings.trainer.steps,
        "seed": settings.trainer.seed,
        "updates": settings.trainer.updates,
        "system": {
            "device": settings.world.device,
            "threads": settings.threads,
            "torch": str(torch.__version__),
            "cpu": torch.backends.cpu.get_cpu_capability(),
        },
    }


def hash_of(config: dict[str, object]) -> str:
    """Sixteen hex digits of what decides the numbers of a run, by whatever machine and however long."""
    deciding = {name: value for name, value in config.items() if name not in ("updates", "system")}
    return hashlib.sha256(msgspec.json.encode(deciding, order="sorted")).hexdigest()[:16]


def settings_of(
    flags: TrainFlags, typed: frozenset[str], resume: Path | str | None
) -> tuple[TrainSettings, Checkpoint | None]:
    """Those of a new run, or of one that goes on; `typed` are the flags that were given.

    Raises `ValueError` naming a flag that does not fit the checkpoint, or why there is none.
    """
    if resume is None:
        return train_settings(flags), None
    checkpoint = find_checkpoint(resume)
    kept = cast("dict[str, Any]", checkpoint.state.config)
    name, algorithm = kept_algorithm(kept)
    if "algorithm" in typed and flags["algorithm"] != name:
        raise ValueError(f"--algorithm is {flags['algorithm']}, the checkpoint was trained with {name}")
    flags = cast("TrainFlags", {**flags, "algorithm": name})
    _refuse_others(flags, typed, kept)
    leaves = _leaves(name)
    filled: dict[str, object] = dict(flags) | {name: _leaf(kept, path) for name, path in leaves.items()}
    filled |= {name: value for name, value in _free(kept).items() if name not in typed}
    if "seconds" in typed and "updates" not in typed:
        filled["updates"] = None
    filled["run_id"] = run_id_of(checkpoint, flags["out"], flags["run_id"])
    filled["out"] = flags["out"] or _run_folder(checkpoint)
    filled |= {
        "slots": None,
        "mode": None,
        "settings": tuple(f"{k}={v}" for k, v in kept["settings"].items()),
        "own": {},
    }
    settings = train_settings(cast("TrainFlags", filled))
    settings = replace(settings, world_settings=kept["settings"], learned=algorithm)
    planned, done = settings.trainer.updates, checkpoint.state.updates
    if planned is not None and done >= planned:
        raise ValueError(f"{checkpoint.where} has had {done} updates; give --updates with more, or --seconds")
    return settings, checkpoint


def run_id_of(checkpoint: Checkpoint, out: Path | None, given: str | None) -> str | None:
    """The id of what goes on from a checkpoint: its run's in the run's folder, elsewhere one of its own.

    The run may go on in its folder, too, so that run and lineage together would name two lines. `None` is one
    that is made up. Raises `ValueError` where the run's own id is given to another line.
    """
    own, home = checkpoint.state.run_id, _run_folder(checkpoint)
    if out is None or (home is not None and out.resolve() == home.resolve()):
        return given or own
    if given == own:
        raise ValueError(
            f"--run-id is {own}, which goes on in {home or checkpoint.where}; leave --run-id or --out out"
        )
    return given


def go_on(trainer: Trainer[Any], checkpoint: Checkpoint, *, is_first: bool = True) -> None:
    """Bring a trainer to where a checkpoint was taken; raises `ValueError` when it does not fit.

    World and draws in a checkpoint are the first rank's: another rank begins new episodes of its own, since
    with the first one's it would collect the same again.
    """
    trainer.algorithm.apply_plan(msgspec.convert(checkpoint.state.plan, Plan))
    try:
        position = position_of(checkpoint)
        trainer.go_on(position if is_first else replace(position, own={}, world={}))
    except (KeyError, RuntimeError) as error:
        raise ValueError(
            f"{checkpoint.where} is of another version of its world or algorithm: {error}"
        ) from error


def differences(state: State, config: dict[str, object]) -> list[str]:
    """What of the machine is not as it was: the numbers are equal to rounding only from here."""
    before = cast("dict[str, Any]", state.config["system"])
    now = cast("dict[str, Any]", config["system"])
    return [
        f"{name} was {before.get(name)}, is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def _refuse_others(flags: TrainFlags, typed: frozenset[str], kept: dict[str, Any]) -> None:
    given = cast("dict[str, object]", flags)
    part = flags["algorithm"]
    leaves = _leaves(part)
    named = {name: (given[name], _leaf(kept, path)) for name, path in leaves.items() if name in typed}
    own = world_settings(flags["slots"], flags["mode"], flags["settings"])
    named |= {f"set {name}": (value, kept["settings"].get(name)) for name, value in own.items()}
    words = flags["own"].get(option := kind_of(part).option, ())
    changed = config_of(train_settings(flags))[part] if words else {}
    for name in named_values(f"--{option}", words):
        path = name.split(".")
        named[f"{part} {name}"] = (_leaf(cast("dict[str, Any]", changed), path), _leaf(kept[part], path))
    for name, (value, before) in named.items():
        if str(value) != str(before):
            flag = name.replace("_", "-")
            raise ValueError(
                f"--{flag} is {value}, the checkpoint was trained with {before}; "
                "leave it out, or begin a new run"
            )


def _leaves(algorithm: str) -> dict[str, tuple[str, ...]]:
    """Flags that may not differ, with the place of each in the configuration."""
    own = {flag: (algorithm, NAMES.get(flag, flag)) for flag in kind_of(algorithm).flags}
    return _LEAVES | own


def _free(kept: dict[str, Any]) -> dict[str, object]:
    system = kept["system"]
    return {"updates": kept["updates"], "device": system["device"], "threads": system["threads"]}


def _leaf(config: dict[str, Any], path: Sequence[str]) -> object:
    value: Any = config
    for name in path:
        value = value[name]
    return value


def _run_folder(checkpoint: Checkpoint) -> Path | None:
    """Where the run was kept; `None` where its checkpoint came from an object store."""
    if is_remote(checkpoint.where):
        return None
    place = checkpoint.path.parent
    return place.parent if place.name == FOLDER else place
