"""Hooks where Ray's libraries have none: around a method of one object, and where RLlib measures time itself.

Rules: what is hooked is called once, with its own arguments, and its result and its exception are passed on.
Must not know what is reported.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from overwatch import sdk
from overwatch.adapters.methods import watch
from overwatch.events import PhaseEnded

LEAST_S: Final = 0.1
"""A phase is sent once so much of it has passed, and with the update: some are done very often in one."""

Clock = Callable[[], AbstractContextManager[object]]


def around(thing: Any, name: str, during: Callable[[Callable[[], Any]], Any]) -> None:
    """Have a method of one object called by `during`, which gets the call."""

    def called(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return during(functools.partial(method, *args, **kwargs))

    watch(thing, {name: called})


def timed(metrics: Any, clocks: Mapping[str, Clock]) -> None:
    """Have what RLlib measures by some of its timers measured by other clocks too."""

    def both(log_time: Callable[..., Any], key: Any, *args: Any, **kwargs: Any) -> Any:
        own, clock = log_time(key, *args, **kwargs), clocks.get(key if isinstance(key, str) else key[-1])
        return own if clock is None else _within(own, clock())

    watch(metrics, {"log_time": both})


@contextmanager
def _within(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[object]:
    with outer as found, inner:
        yield found


def cause(error: BaseException) -> str:
    """What an exception was first: Ray's libraries raise another one, without a message, for an env's."""
    while (first := error.__cause__ or error.__context__) is not None:
        error = first
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class Phases:
    """Time spent on the phases of a loop."""

    def __init__(self) -> None:
        self.run: sdk.Run | None = None
        self._spent: dict[str, float] = {}

    @contextmanager
    def on(self, phase: str) -> Iterator[None]:
        """Measure one stretch of a phase; an exception ends the loop, and its stretch is none."""
        began = time.perf_counter()
        yield
        self._spent[phase] = self._spent.get(phase, 0.0) + time.perf_counter() - began
        if self._spent[phase] >= LEAST_S:
            self._send(phase)

    def send(self) -> None:
        """What is left is part of this update."""
        for phase in list(self._spent):
            self._send(phase)

    def _send(self, phase: str) -> None:
        duration = self._spent.pop(phase)
        if self.run is not None:
            at, update = time.time_ns(), self.run.last_update
            self.run.fact(PhaseEnded(at=at, phase=phase, duration_s=duration, update=update))
