"""The worlds: a name, and where its factory is; a world is imported only when it is asked for."""

import difflib
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from overwatch_rl.components import component, is_importable

if TYPE_CHECKING:  # a subprocess of an env imports this package, and needs no torch
    from overwatch_rl.worlds.base import World, WorldConfig

WORLDS: Final[dict[str, str]] = {
    "goodhart": "overwatch_rl.worlds.goodhart.world:make",
    "gym": "overwatch_rl.worlds.gym:make",
    "morphogenesis": "overwatch_rl.worlds.morphogenesis.world:make",
}
"""Name to `module:function`; the function takes the part of the name behind the first colon, a `WorldConfig`
and the settings of that world alone by name, and raises `ValueError` naming a setting that is wrong."""


def modes_of(name: str) -> tuple[str, ...]:
    """The modes that the world called `name` has, in its module's `MODES`; none where it has no modes."""
    return tuple(getattr(_module(name), "MODES", ()))


def is_shaped(name: str) -> bool:
    """Whether the world called `name` has the setting `gamma`, which must be the discount of its learner."""
    return bool(getattr(_module(name), "IS_SHAPED", False))


def make(name: str, config: "WorldConfig", settings: Mapping[str, object] | None = None) -> "World":
    """The world called `name`, as `gym:CartPole-v1` with a part of its own behind the first colon.

    One of the user's is `package.module:name`, with its part behind a second colon. Raises `ValueError` when
    there is none or a setting of it is wrong.
    """
    target, part = _target(name)
    return cast("World", component(target)(part, config, dict(settings or {})))


def _module(name: str) -> ModuleType:
    return importlib.import_module(_target(name)[0].partition(":")[0])


def _target(name: str) -> tuple[str, str]:
    """Where the factory is, and the part of the name that it is given."""
    kind, _, part = name.partition(":")
    if kind in WORLDS:
        return WORLDS[kind], part
    if is_importable(name):
        attribute, _, part = part.partition(":")
        return f"{kind}:{attribute}", part
    near = [f"gym:{name}"] if "-v" in name else difflib.get_close_matches(kind, WORLDS, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(sorted(WORLDS))
    raise ValueError(f"world {name!r} does not exist; use one of {known}, or package.module:name{meant}")
