"""The flight's own log, for a program."""

import io
import json
import math
from typing import Any

import pytest
import torch

from overwatch.catalog import Scope
from overwatch.events import CheckpointSaved, EarlyStopped, LogLine, NonFiniteSeen, Severity
from overwatch_rl.telemetry.log import FlightLog, Rates, flight_logger
from overwatch_rl.types import Rolled

TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


class Clock:
    """Stands until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def made(trace: str = "") -> tuple[FlightLog, io.StringIO, Clock]:
    """A log into memory."""
    stream, clock = io.StringIO(), Clock()
    log = flight_logger(stream, run_id="r", config="c")
    return FlightLog(log, "cpu", lambda: trace, clock=clock), stream, clock


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written; each line is an object of its own."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def rolled(steps: int, envs: int) -> Rolled:
    """Of this size."""
    flags = torch.zeros(steps, envs, dtype=torch.bool)
    return Rolled(
        first_step=1, at_first=0.0, at_last=1.0, actions=flags, rewards=flags.float(), terminated=flags,
        truncated=flags, episode_return=flags.double(), episode_length=flags.int(), columns={},
        seen=torch.tensor([[0, 1], [1, 0]]),
    )  # fmt: skip


def test_every_line_is_bound() -> None:
    """Run, configuration, level, time; update and trace from when there are such."""
    log, stream, _ = made(TRACE)
    log.started(task="digits")
    log.update(3, {"return": 1.0})
    log.close(outcome="completed")
    first, update, last = lines(stream)

    assert all((one["run_id"], one["config"], one["level"]) == ("r", "c", "info") for one in lines(stream))
    assert all(one["timestamp"].endswith("Z") for one in lines(stream))
    assert (first["event"], first["task"], "update" in first) == ("run started", "digits", False)
    assert (update["event"], update["update"], update["trace_id"]) == ("update", 3, "ab" * 16)
    assert (last["event"], last["update"], last["outcome"], last["reason"]) == (
        "run ended",
        3,
        "completed",
        None,
    )
    log, stream, _ = made()
    log.update(1, {})
    assert "trace_id" not in lines(stream)[0]


def test_an_update_has_its_numbers_rates_and_phases() -> None:
    """What is not finite is a word; shares add up to one and are of what ended since the line before."""
    log, stream, clock = made()
    for _ in range(2):
        with log.phase("collect"):
            log.rollout(rolled(5, 4))
        with log.phase("update"):
            clock.now += 2.0
        log.update(1, {"return": math.nan, "entropy": 0.5, "norm": math.inf})
    first, second = lines(stream)

    assert first["values"] == {"return": "NaN", "entropy": 0.5, "norm": "Infinity"}
    assert second["steps_a_second"] == {"instant": 10.0, "rolling": 10.0, "global": 10.0}
    for line in (first, second):
        assert set(line["phases"]) == {"collect", "update"}
        assert sum(line["phases"].values()) == pytest.approx(1.0, abs=1e-3)


def test_rates_are_of_the_last_the_last_four_and_all() -> None:
    """A mark without time passed has none, and a process that steps no envs has none at all: not 0."""
    rates = Rates(0.0)
    assert rates.mark(0.0) == {}
    found = {}
    for second, steps in enumerate((10, 20, 30, 40, 50, 60), start=1):
        rates.add(steps)
        found = rates.mark(float(second))

    assert found == {"instant": 60.0, "rolling": 45.0, "global": 35.0}


def test_what_lies_in_memory_is_logged_once_before_the_first_update() -> None:
    """By then all of it is allocated."""
    log, stream, _ = made()
    log.memory = lambda: {"policy": 5, "buffers": 7}
    log.update(1, {})
    log.update(2, {})
    memory, *updates = lines(stream)

    assert (memory["event"], memory["bytes"], memory["total_bytes"]) == (
        "memory",
        {"policy": 5, "buffers": 7},
        12,
    )
    assert [one["event"] for one in updates] == ["update", "update"]


def test_facts_are_lines_with_their_own_fields() -> None:
    """A line of log keeps its level; what is not finite is a warning."""
    log, stream, _ = made()
    log.fact(CheckpointSaved(at=1, path="p", update=4, size_bytes=9, duration_s=0.5))
    log.fact(EarlyStopped(at=1, update=2, epoch=1, kl_divergence=0.3, target=0.1, minibatches_skipped=8))
    log.fact(NonFiniteSeen(at=1, scope=Scope.POLICY, metric="m", kind="nan", count=2))
    log.fact(LogLine(at=1, severity=Severity.CRITICAL, message="not written", subsystem="checkpoints"))
    log.close(outcome="failed", reason="E: x")
    saved, stopped, seen, line, ended = lines(stream)

    assert (saved["event"], saved["path"], saved["update"], saved["size_bytes"]) == (
        "checkpoint_saved",
        "p",
        4,
        9,
    )
    assert (stopped["event"], stopped["epoch"], stopped["level"]) == ("early_stopped", 1, "info")
    assert (seen["level"], seen["count"]) == ("warning", 2)
    assert (line["event"], line["level"], line["subsystem"]) == ("not written", "error", "checkpoints")
    assert (ended["level"], ended["reason"]) == ("error", "E: x")
