"""An object whose training is one call, as a run: it begins with the call and ends as the call ends.

Rules: what the call returns or raises goes on unchanged; a method that is looked at is the library's own
again when the call is over. Must not know which library calls.
"""

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from overwatch import sdk
from overwatch.adapters.envs import Bordered, EnvReporter, kept_out
from overwatch.adapters.loops import Phases, replaced

See = Callable[..., None]
"""Takes what a method returned, the seconds that it took, and its arguments."""


class Watching(Protocol):
    """What an adapter knows of its library."""

    def start(self, *args: Any, **kwargs: Any) -> sdk.Run:
        """A run of its own, by the arguments of the call."""

    def look(self) -> None:
        """Look at methods while the call lasts."""

    def settle(self) -> None:
        """The call is over: send what still waits."""


class Watched(Bordered):
    """Reports each call of a method to `run`, or to a run of its own that ends with the call."""

    def __init__(self, watching: Watching, run: sdk.Run | None) -> None:
        self._watching, self._given = watching, run
        self._hooks = ExitStack()
        self.began = 0.0
        """When the update began that is under way."""
        self.run: sdk.Run
        self.phases: Phases

    def over(self, owner: object, name: str) -> None:
        """Each call of this method is a run."""
        train = getattr(owner, name)

        @functools.wraps(train)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._begin(*args, **kwargs)
            try:
                result = train(*args, **kwargs)
            except BaseException as error:
                self._end(error)
                raise
            self._end(None)
            return result

        replaced(owner, {name: call})

    def after(self, owner: object, name: str, see: See, phase: str | None = None) -> None:
        """Call `see` after each call of this method that returns; the call may be a phase."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            if phase is None:
                result = method(*args, **kwargs)
            else:
                with self.phases.during(phase):
                    result = method(*args, **kwargs)
            self._see(see, result, time.perf_counter() - began, *args, **kwargs)
            return result

        self._hooks.callback(replaced(owner, {name: call}))

    def update_time(self) -> float:
        """Seconds since the update before, or since the call began."""
        began, self.began = self.began, time.perf_counter()
        return self.began - began

    @kept_out
    def _begin(self, *args: Any, **kwargs: Any) -> None:
        self._hooks.close()
        self.run = self._given or self._watching.start(*args, **kwargs)
        self.phases = Phases(self.run)
        self.phases.switch("collect")
        self.began = time.perf_counter()
        self._watching.look()

    @kept_out
    def _see(self, see: See, *args: Any, **kwargs: Any) -> None:
        see(*args, **kwargs)

    @kept_out
    def _end(self, error: BaseException | None) -> None:
        try:
            self._hooks.close()
            self._watching.settle()
        finally:
            self.phases.close()
            if self._given is None:
                ended(self.run, error)


def ended(run: sdk.Run, error: BaseException | None) -> None:
    """End a run as its loop ended."""
    run.__exit__(None if error is None else type(error), error, None)


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are a number or a text and no private ones."""
    kept = {name: value for name, value in settings.items() if isinstance(value, int | float | str)}
    return {name: value for name, value in kept.items() if not name.startswith("_")}


class Turns:
    """Each turn of envs that are stepped together: what it paid, what ended with it, what that had earned."""

    def __init__(self, report: EnvReporter, num_envs: int) -> None:
        self._report = report
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs)
        self._rewards = np.zeros(num_envs)

    def turn(self, rewards: Any, ends: Any, seconds: float, *, rows: Any = None, actions: Any = None) -> None:
        """One turn of all envs, or of those of `rows`."""
        paid, over = column(rewards), column(ends) != 0
        if rows is None:
            self._returns += paid
            self._lengths += 1
            self._report.step(paid, seconds, actions=None if actions is None else column(actions))
            ended = over
        else:
            counted, ended = np.zeros((2, self._returns.size), dtype=np.bool_)
            counted[rows], ended[rows], self._rewards[rows] = True, over, paid
            self._returns[rows] += paid
            self._lengths[rows] += 1
            self._report.step(self._rewards, seconds, counted)
        if over.any():
            self._report.episodes(np.flatnonzero(ended), self._returns[ended], self._lengths[ended])
            self._returns[ended] = 0.0
            self._lengths[ended] = 0.0

    def forget(self, rows: Any = None) -> None:
        """Envs were reset, all or those of `rows`: what ran there has no end."""
        rows = slice(None) if rows is None else rows
        self._returns[rows] = 0.0
        self._lengths[rows] = 0.0

    def flush(self) -> None:
        """Send what is newest."""
        self._report.flush()


def column(values: Any) -> npt.NDArray[Any]:
    """One number an env, of an array or of a tensor on any device."""
    host = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(host).reshape(-1)
