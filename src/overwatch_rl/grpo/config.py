"""From flags to what each part of a grpo run is given; the parts validate themselves.

Owns the defaults of the command line, sized so that the reward of held-out prompts rises from a fifth to more
than four fifths in half a minute of one core. Raises `ValueError` naming the value and the fix.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from overwatch_rl.algorithms.grpo import GRPOConfig
from overwatch_rl.grpo.base import BaseConfig
from overwatch_rl.grpo.task import TaskConfig
from overwatch_rl.grpo.trainer import LoopConfig
from overwatch_rl.telemetry.tower import TowerConfig

PRESET: Final = GRPOConfig(learning_rate=3e-4, reference_coef=0.05)
"""What a run learns with where nothing else is given."""
TARGET_KL_REFERENCE: Final = 2.0
"""Declared with the run. To choose one of four habits costs log 4 nats in an answer of four to six letters,
0.28 a letter; with so small a weight single updates of a run that learns reach 1.5."""
TASK: Final = TaskConfig(least=3, most=5)
STALE: Final = "stale-handler"
"""The fault that a run can be given: `stale-handler@20`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpoSettings:
    """One run."""

    task: TaskConfig = TASK
    base: BaseConfig = field(default_factory=BaseConfig)
    grpo: GRPOConfig = PRESET
    loop: LoopConfig = field(default_factory=LoopConfig)
    seed: int = 0
    handlers: int = 3
    """Processes that sample; 0 where they are started elsewhere."""
    groups: int = 32
    """Prompts of a batch."""
    group_size: int = 8
    """Answers to each."""
    max_staleness: int = 1
    """Most updates by which an answer may be older than the policy that learns from it."""
    stale_from: int | None = None
    """A fault of the first handler."""
    server: str | None = None
    """`None` starts one."""
    token_file: Path | None = None
    weights: Path | None = None
    """Folder of weights; `None` for one below `out`, else one that is removed afterwards."""
    out: Path | None = None
    threads: int = 1
    tower: TowerConfig | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("groups", 1),
            ("group_size", 2),
            ("handlers", 0),
            ("max_staleness", 0),
            ("threads", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; use {least} or more")
        if self.handlers == 0 and self.weights is None:
            raise ValueError(
                "handlers is 0 and no folder of weights is named; give --weights, so that others find it"
            )


def grpo_settings(flags: Mapping[str, Any]) -> GrpoSettings:
    """Assemble and validate what `overwatch-rl grpo` was given, `None` where a flag was not typed."""
    names = (
        "seed", "handlers", "groups", "group_size", "max_staleness", "server", "token_file", "weights", "out",
        "threads",
    )  # fmt: skip
    tower = TowerConfig(
        run_id=flags["run_id"], endpoint=flags["endpoint"], algo="grpo", updates=flags["updates"]
    )
    return GrpoSettings(
        **{name: flags[name] for name in names},
        task=_typed(TASK, least=flags["least"], most=flags["most"]),
        base=_typed(BaseConfig(), steps=flags["base_steps"], width=flags["width"]),
        grpo=_typed(
            PRESET, learning_rate=flags["lr"], minibatches=flags["minibatches"], epochs=flags["epochs"],
            reference_coef=flags["reference_coef"], shuffled=flags["shuffled"], recent=flags["max_staleness"]
        ),
        loop=LoopConfig(updates=flags["updates"], peak_flops=flags["peak_flops"]),
        stale_from=None if flags["fault"] is None else stale_from(flags["fault"]),
        tower=tower if flags["telemetry"] else None,
    )  # fmt: skip


def stale_from(word: str) -> int:
    """The version of `stale-handler@20`; raises `ValueError`."""
    name, _, number = word.partition("@")
    if name != STALE or not number.isdecimal():
        raise ValueError(
            f"fault is {word!r}; write {STALE}@20 for a handler that keeps its weights from version 20 on"
        )
    return int(number)


def config_of(settings: GrpoSettings) -> dict[str, object]:
    """The configuration of a run, as it lies in checkpoints."""
    return {
        "program": "grpo",
        "task": asdict(settings.task),
        "base": asdict(settings.base),
        "grpo": asdict(settings.grpo),
        "groups": settings.groups,
        "group_size": settings.group_size,
        "max_staleness": settings.max_staleness,
        "seed": settings.seed,
        "updates": settings.loop.updates,
        "system": {"device": "cpu", "threads": settings.threads, "torch": str(torch.__version__)},
    }


def described(settings: GrpoSettings) -> dict[str, str]:
    """Every value that decided the run, as words, shown with it."""
    own = asdict(settings.grpo) | {
        name: getattr(settings, name)
        for name in ("handlers", "groups", "group_size", "max_staleness", "seed")
    }
    own |= {"lr": settings.grpo.learning_rate, "target_kl_reference": TARGET_KL_REFERENCE, "device": "cpu"}
    own["digits"] = f"{settings.task.least}-{settings.task.most}"
    return {name: str(value) for name, value in own.items()}


def _typed(preset: Any, **given: object) -> Any:
    """The preset with what was typed."""
    return replace(preset, **{name: value for name, value in given.items() if value is not None})
