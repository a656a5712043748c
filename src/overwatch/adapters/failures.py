"""How an exception leaves a training loop: that it does, and which env it came from.

Rules: what is watched gets a class of its own and no attribute, since libraries save attributes; an exception
goes on unchanged. An env is named where the frames of the exception say which one it was. Must not import a
library.
"""

import functools
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_CALLS: Final = ("step", "reset")
"""What a vector calls of an env."""


def watch(
    loop: object,
    names: Iterable[str],
    failed: Callable[[BaseException], None],
    before: Mapping[str, Callable[..., None]] = MappingProxyType({}),
) -> Callable[[], None]:
    """Call `failed` while an exception leaves one of these methods, until what this returns is called.

    A function of `before` gets the arguments of the method of its name first.
    """
    kind = type(loop)
    methods = {name: failing(getattr(kind, name), failed) for name in names if hasattr(kind, name)}
    for name, call in before.items():
        if hasattr(kind, name):
            methods[name] = _led(methods.get(name, getattr(kind, name)), call)
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, **methods}
    loop.__class__ = types.new_class(kind.__name__, (kind,), exec_body=lambda body: body.update(own))

    def unwatch() -> None:
        loop.__class__ = kind

    return unwatch


def failing(method: Callable[P, T], failed: Callable[[BaseException], None]) -> Callable[P, T]:
    """The method; `failed` is called while an exception leaves it."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            failed(error)
            raise

    return call


def _led(method: Callable[..., T], first: Callable[..., None]) -> Callable[..., T]:
    @functools.wraps(method)
    def call(self: object, *args: Any, **kwargs: Any) -> T:
        first(*args, **kwargs)
        return method(self, *args, **kwargs)

    return call


def culprit(error: BaseException, envs: Any) -> int | None:
    """The env of a vector that raised an error, or whose process is gone; `None` where that is not known.

    `envs` is the innermost vector, of Gymnasium or of Stable-Baselines3.
    """
    pipes = getattr(envs, "remotes", None) or getattr(envs, "parent_pipes", None) or ()
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame, inner in zip_longest(frames, frames[1:]):
        here, owner = frame.f_locals, frame.f_locals.get("self")
        called = inner is not None and inner.f_code.co_name in _CALLS
        if owner is envs:
            known = (
                ("index", frame.f_code.co_name == "_raise_if_errors"),
                ("env_idx", called),
                ("i", called),
            )
            for local, holds in known:
                if holds and isinstance(here.get(local), int):
                    return int(here[local])
        for number, pipe in enumerate(pipes):
            if owner is pipe is not None:
                return number
    return None
