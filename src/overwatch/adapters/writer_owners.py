"""The library's object that makes a `SummaryWriter`, where one call of it is the training and ends the run.

rl_games never closes its writer, and Sample Factory returns a status where others raise: without these, a run
would stay open beside the next, or read `completed` after Ctrl-C. Must not know what is logged.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from overwatch.adapters.methods import watch
from overwatch.adapters.scalars import Scalars
from overwatch.adapters.watching import plain
from overwatch.sdk.ending import COMPLETED, Ending


class Owner(NamedTuple):
    """How one library trains."""

    method: str
    ending: Callable[[object], Ending]
    """How a call ended that returned this."""
    config: Callable[[Any], Mapping[str, Any]]
    """Settings of the object, with the `target_kl` that it holds to."""


def _of_status(status: object) -> Ending:
    return {1: Ending("failed", "status FAILURE"), 2: Ending("interrupted", "status INTERRUPTED")}.get(
        status if isinstance(status, int) else 0, COMPLETED
    )


def _of_rl_games(agent: Any) -> dict[str, Any]:
    """An adaptive learning rate holds KL between half and twice its threshold."""
    config = dict(getattr(agent, "config", None) or {})
    threshold = config.get("kl_threshold") if config.get("lr_schedule") == "adaptive" else None
    return plain(config) | ({} if threshold is None else {"target_kl": 2 * float(threshold)})


OWNERS: Final[Mapping[str, Owner]] = {
    "rl_games": Owner("train", lambda _: COMPLETED, _of_rl_games),
    "sample_factory": Owner("run", _of_status, lambda runner: plain(vars(getattr(runner, "cfg", runner)))),
}
"""By package."""


def follow_owner(scalars: Scalars, config: dict[str, Any]) -> None:
    """End a writer's run as the training of whatever makes the writer ends, and note its settings."""
    frame = inspect.currentframe()
    while frame is not None:
        made_by = frame.f_locals.get("self")
        packages = [kind.__module__.partition(".")[0] for kind in type(made_by).__mro__]
        owner = next((OWNERS[package] for package in packages if package in OWNERS), None)
        if owner is not None and callable(getattr(made_by, owner.method, None)):
            config |= {name: value for name, value in owner.config(made_by).items() if name not in config}
            watch(made_by, {owner.method: _ends(scalars, owner.ending)})
            return
        frame = frame.f_back


def _ends(scalars: Scalars, ending: Callable[[object], Ending]) -> Callable[..., Any]:
    def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the training method, and end the run as it ends."""
        try:
            result = method(*args, **kwargs)
        except BaseException:
            scalars.close()  # as the exception that is being handled
            raise
        scalars.close(*ending(result))
        return result

    return around
