"""The worlds: a name, and where its class is; a world is imported only when it is asked for."""

import importlib
from typing import Final, cast

from overwatch_rl.envs.base import VecEnv, WorldConfig

ENVS: Final[dict[str, str]] = {
    "morphogenesis": "overwatch_rl.envs.morphogenesis:Morphogenesis",
}
"""Name to `module:Class`; the class takes a `WorldConfig`."""


def make(name: str, config: WorldConfig) -> VecEnv:
    """The world called `name`; raises `ValueError` when there is none."""
    target = ENVS.get(name)
    if target is None:
        raise ValueError(f"world {name!r} does not exist; use one of {', '.join(sorted(ENVS))}")
    module, _, attribute = target.partition(":")
    world = getattr(importlib.import_module(module), attribute)
    return cast("VecEnv", world(config))
