"""A record that the exporter cannot read costs itself alone, never the telemetry of the run."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import overwatch.sdk
from overwatch.catalog import Scope
from overwatch.events import Event, LogLine, Measured
from overwatch.sdk.exporter.record_events import global_envs
from tests.overwatch.sdk.sink import Sink, http_sink


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sink]:
    """A collector over HTTP, and folders of the test's own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OVERWATCH_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("OVERWATCH_RING_DIR", str(tmp_path / "rings"))
    with http_sink() as sink:
        yield sink


def test_env_numbers_of_any_width_are_moved(sink: Sink) -> None:
    """The thousandth env of a rank that numbers its own in bytes."""
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False, env_offset=1000, n_envs=2)
    run.envs(env_id=np.array([0, 1], dtype=np.uint8), reward=[1.0, 2.0])
    run.envs(env_id=np.array([2, 3], dtype=np.int8), reward=[1.0, 2.0])
    run.envs(env_id=[2**31 - 1, 5], reward=[1.0, 2.0])
    assert run.close(10.0).delivered
    reported = [event for event in sink.events(Measured) if event.scope is Scope.ENV]
    moved = sorted(number for event in reported for number in event.keys["env_id"].array().tolist())
    assert moved == [1000, 1001, 1002, 1003, 1005, 2**31 + 999]


def test_what_cannot_be_sent_is_counted_and_passed_over(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the exporter at one record, injected into one that is a thread: the next ones arrive."""

    def failing(event: Event, offset: int) -> Event:
        if isinstance(event, LogLine) and event.message == "poison":
            raise MemoryError
        return global_envs(event, offset)

    monkeypatch.setattr("overwatch.sdk.exporter.core.global_envs", failing)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    run = overwatch.sdk.start(endpoint=sink.endpoint, sample=False, n_envs=2)
    for line in ("before", "poison", "after", "poison"):
        run.log(line)
    report = run.close(10.0)
    assert (report.accepted, report.kept, report.dropped) == (5, 0, {"invalid": 2})
    assert [event.message for event in sink.events(LogLine)] == ["before", "after"]
