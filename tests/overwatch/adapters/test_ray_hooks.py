"""Hooks pass everything on, and measure what they are put around."""

from contextlib import contextmanager
from typing import Any

import pytest

from overwatch.adapters.ray_hooks import Phases, around, cause, timed
from overwatch.events import PhaseEnded
from tests.overwatch.adapters.receiving import local_run


class Thing:
    """Something with a method, and RLlib's way to measure time."""

    def __init__(self) -> None:
        self.measured: list[Any] = []

    def double(self, number: int, *, plus: int = 0) -> int:
        """Twice a number."""
        if number < 0:
            raise ValueError(f"{number} is negative")
        return 2 * number + plus

    @contextmanager
    def log_time(self, key: Any) -> Any:
        """As RLlib's logger of metrics."""
        self.measured.append(key)
        yield key


def test_a_method_is_called_once_with_its_own_arguments() -> None:
    """Of this object alone; its result and its exception are the method's."""
    thing, calls = Thing(), []

    def during(call: Any) -> Any:
        calls.append("began")
        return call()

    around(thing, "double", during)

    assert thing.double(2, plus=1) == 5
    with pytest.raises(ValueError, match="-1 is negative"):
        thing.double(-1)
    assert calls == ["began"] * 2
    assert Thing().double(3) == 6
    assert len(calls) == 2


def test_a_timer_is_measured_by_both_clocks() -> None:
    """By the last part of its key; others as before."""
    thing, ours = Thing(), []

    @contextmanager
    def clock() -> Any:
        ours.append("began")
        yield
        ours.append("ended")

    timed(thing, {"learn": clock})
    with thing.log_time(("timers", "learn")) as found:
        assert (found, ours) == (("timers", "learn"), ["began"])
    with thing.log_time("sample"):
        pass

    assert ours == ["began", "ended"]
    assert thing.measured == [("timers", "learn"), "sample"]


def test_short_stretches_of_a_phase_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the update; a long one at once. An exception ends the loop, and its stretch is none."""
    run, received = local_run()
    now = iter([0.0, 0.02, 1.0, 1.03, 2.0, 2.5, 3.0])
    monkeypatch.setattr("overwatch.adapters.ray_hooks.time.perf_counter", lambda: next(now))
    phases = Phases()
    phases.run = run
    for name in ("learn", "learn", "collect"):
        with phases.on(name):
            pass
    with pytest.raises(ValueError, match="bad"), phases.on("learn"):
        raise ValueError("bad")

    assert [(one.phase, one.duration_s) for one in received.of(PhaseEnded)] == [("collect", 0.5)]
    phases.send()
    assert received.of(PhaseEnded)[1].phase == "learn"
    assert received.of(PhaseEnded)[1].duration_s == pytest.approx(0.05)


def test_the_first_exception_is_the_cause() -> None:
    """RLlib raises a bare RuntimeError from an env's own."""
    error = RuntimeError()
    error.__cause__ = ValueError("the env broke")

    assert cause(error) == "ValueError: the env broke"
