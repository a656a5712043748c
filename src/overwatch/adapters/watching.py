"""An object whose training is one call, as a run: it begins with the call and ends as the call ends.

Rules: what the call returns or raises goes on unchanged; a method that is looked at is the library's own
again when the call is over. Must not know which library calls.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.loops import Phases
from overwatch.adapters.methods import watch

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
        watch(owner, {name: self._train})

    def after(self, owner: object, name: str, see: See, phase: str | None = None) -> None:
        """Call `see` after each call of this method that returns; the call may be a phase."""

        def around(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            if phase is None:
                result = method(*args, **kwargs)
            else:
                with self.phases.during(phase):
                    result = method(*args, **kwargs)
            self._see(see, result, time.perf_counter() - began, *args, **kwargs)
            return result

        self._hooks.callback(watch(owner, {name: around}))

    def update_time(self) -> float:
        """Seconds since the update before, or since the call began."""
        began, self.began = self.began, time.perf_counter()
        return self.began - began

    def _train(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._begin(*args, **kwargs)
        try:
            result = method(*args, **kwargs)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        return result

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
