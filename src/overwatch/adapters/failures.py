"""Which env of a vector an exception came from, where the frames of the exception show it.

Must not import a library.
"""

import traceback
from itertools import zip_longest
from typing import Any, Final

_CALLS: Final = ("step", "reset")
"""What a vector calls of an env."""


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
