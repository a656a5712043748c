"""Reporters, composed. Must not know what any of them does."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence

from overwatch.catalog.phases import STARTUP
from overwatch.events import Event, PhaseEnded
from overwatch_rl.types import Reporter, Rolled


def plain(values: Mapping[str, float]) -> dict[str, float | str]:
    """The values for JSON, which has no numbers that are not finite: those by the words of protobuf's JSON.

    >>> plain({"loss": math.nan, "norm": -math.inf, "return": 0.5})
    {'loss': 'NaN', 'norm': '-Infinity', 'return': 0.5}
    """
    words = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return {
        name: value if math.isfinite(value) else words.get(value, "NaN") for name, value in values.items()
    }


def started(reporter: Reporter, began: float) -> None:
    """Report the phase `startup`, which began before there was a reporter, by `time.perf_counter`."""
    took = time.perf_counter() - began
    reporter.fact(PhaseEnded(at=time.time_ns(), phase=STARTUP, duration_s=took))


class Fanout:
    """Several reporters as one, in their order."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase of all of them."""
        with contextlib.ExitStack() as stack:
            for reporter in self._reporters:
                stack.enter_context(reporter.phase(name))
            yield

    def beat(self, step: int, duration_s: float) -> None:
        """A step, to each."""
        for reporter in self._reporters:
            reporter.beat(step, duration_s)

    def rollout(self, rolled: Rolled) -> None:
        """A rollout, to each."""
        for reporter in self._reporters:
            reporter.rollout(rolled)

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """An update, to each."""
        for reporter in self._reporters:
            reporter.update(index, values)

    def fact(self, event: Event) -> None:
        """A fact, to each."""
        for reporter in self._reporters:
            reporter.fact(event)

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Close each, even when an earlier one fails."""
        with contextlib.ExitStack() as stack:
            for reporter in reversed(self._reporters):
                stack.callback(reporter.close, outcome=outcome, reason=reason)


class Silent:
    """A reporter of which each call does nothing; others take from it what they do not need."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002
        """Nothing."""
        return contextlib.nullcontext()

    def beat(self, step: int, duration_s: float) -> None:
        """Nothing."""

    def rollout(self, rolled: Rolled) -> None:
        """Nothing."""

    def update(self, index: int, values: Mapping[str, float]) -> None:
        """Nothing."""

    def fact(self, event: Event) -> None:
        """Nothing."""

    def close(self, *, outcome: str, reason: str | None = None) -> None:
        """Nothing."""
