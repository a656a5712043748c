"""The time of stamps and ticks: that of the machine, without its jumps."""

import json
import time
from pathlib import Path

import pytest

from overwatch.catalog import Scope
from overwatch.collector import Service
from overwatch.collector.clock import SteadyClock
from overwatch.events import Measured, scalars
from overwatch.fold import SLOW_NS
from overwatch.snapshot import Snapshot, View
from tests.overwatch.collector.running import config, eventually, http, reported

HOUR = 3600 * SLOW_NS


class Machine:
    """A machine whose clock is set now and then."""

    def __init__(self) -> None:
        self.set_by = 0

    def wall(self) -> int:
        """What its clock shows."""
        return time.time_ns() + self.set_by


def test_it_is_the_machines_time() -> None:
    """While nobody sets the machine's clock there is no difference to speak of."""
    before = time.time_ns()
    found = [SteadyClock(), SteadyClock()]
    assert all(abs(clock() - before) < SLOW_NS for clock in found)


def test_a_clock_that_is_set_is_logged_once_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    """What is small is not logged; that it was set right again is."""
    walls = iter([HOUR, HOUR + 1, HOUR + SLOW_NS, 2 * HOUR, 2 * HOUR + 1, HOUR + 5])
    steadies = iter(range(6))
    clock = SteadyClock(walls.__next__, steadies.__next__)

    assert [clock() for _ in range(5)] == [HOUR + passed for passed in range(1, 6)]
    assert [record.getMessage().partition(" s from")[0][-5:] for record in caplog.records] == [
        "+3600",
        "is +0",
    ]


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_jump_of_the_machines_clock_stops_no_frames_and_loses_no_run(tmp_path: Path, jump: int) -> None:
    """What is sent after it is shown, no age is negative, nobody was silent; the next life goes on too."""
    machine = Machine()
    for first, set_by in ((10, jump), (20, 0)):
        service = Service(config(tmp_path), SteadyClock(machine.wall))
        service.start()
        try:
            _send(service, machine, first)
            machine.set_by += set_by
            snapshot = _send(service, machine, first + 1)
            healthy = json.loads(http(str(service.endpoints.health)).body)["healthy"]
        finally:
            service.stop()
        assert (healthy, service.failed_stops) == (True, 0)
        assert snapshot.link.state in ("live", "slow", "catching_up")
        assert (snapshot.link.data_age_s or 0.0) >= 0.0
        assert {finding.code for finding in snapshot.findings} <= {"clock-ahead", "collector-away"}


def _send(service: Service, machine: Machine, index: int) -> Snapshot:
    """An update stamped by that machine's clock, and the snapshot that has it."""
    event = Measured(
        at=machine.wall(), scope=Scope.POLICY, index=index, values=scalars({"overwatch.policy.entropy": 0.6})
    )
    url = f"{service.endpoints.otlp_http}/v1/logs"
    body = reported("run-a", [event], index)
    assert http(url, body, "POST", Content_Type="application/x-protobuf").status == 200

    def look() -> Snapshot | None:
        frame = service.context.notifier.latest
        shown = None if frame is None else frame.snapshots.get(("run-a", View()))
        return shown if shown is not None and shown.run.update == index else None

    return eventually(look, 10)
