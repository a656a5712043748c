"""A collector as shipped in a small memory group: not killed, no start repeats a kill, it answers."""

import os
import time
from collections.abc import Iterable, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from overwatch.events import Event, Origin, Record
from overwatch.otlp.encode import request
from tests import fakes
from tests.e2e.collecting import until
from tests.e2e.killing import Collector
from tests.e2e.memory_groups import MemoryGroup, memory_group

GAUGES = 66_000
PER_BODY = 3000
RUNS = 6
ENVS = 4096


class Grouped(Collector):
    """One whose lives are in a group."""

    def __init__(self, folder: Path, group: MemoryGroup, *sets: str) -> None:
        super().__init__(folder, *sets)
        self._command = group.command(self._command)
        self._group = group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        until(lambda: not (self._group.folder / "cgroup.procs").read_text(), "the end of its processes")

    def post(self, body: bytes) -> int:
        """The status of one request; 0 where there was no answer."""
        assert self.endpoints is not None
        place = urlsplit(str(self.endpoints.otlp_http))
        connection = HTTPConnection(str(place.hostname), place.port, timeout=20)
        try:
            connection.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    @property
    def is_alive(self) -> bool:
        """Whether its process goes on."""
        return self._process is not None and self._process.poll() is None


def body(run_id: str, seq: int, events: Sequence[Event]) -> bytes:
    """Events of one run."""
    origin = Origin(run_id=run_id, epoch=f"epoch-{run_id}", ours=True)
    return request([Record(origin=origin, event=e, seq=seq + i) for i, e in enumerate(events)], {})


def measured(ids: Sequence[int], index: int) -> Event:
    """Gauges of these envs."""
    return fakes.envs(time.time_ns(), ids, index, reward=[1.0] * len(ids), step_time=[0.1] * len(ids))


def flood() -> Iterable[bytes]:
    """One run that numbers envs on and on."""
    yield body("flood", 1, [fakes.started(time.time_ns(), n_envs=8)])
    for seq, first in enumerate(range(0, GAUGES, PER_BODY), 2):
        yield body("flood", seq, [measured(range(first, first + PER_BODY), seq)])


def sweep() -> Iterable[bytes]:
    """Runs that begin, step and end, one after another."""
    for number in range(RUNS):
        name = f"sweep-{number}"
        yield body(name, 1, [fakes.started(time.time_ns(), n_envs=ENVS)])
        yield body(name, 2, [measured(range(ENVS), 1)])
        yield body(name, 3, [measured(range(ENVS), 2)])
        yield body(name, 4, [fakes.finished(time.time_ns())])


@pytest.mark.parametrize("mib", [256, *(pytest.param(mib, marks=pytest.mark.long) for mib in (300, 512))])
def test_a_small_group_holds_a_collector_as_shipped(tmp_path: Path, mib: int) -> None:
    """Envs without end, then runs one after another, then kills: no kill by the kernel, none of it lasts."""
    with (
        memory_group(f"overwatch-{os.getpid()}-{mib}", mib) as group,
        Grouped(tmp_path, group) as collector,
    ):
        collector.start()
        statuses = [collector.post(each) for bodies in (flood(), sweep()) for each in bodies]
        assert set(statuses) <= {200, 503}, collector.log
        for _ in range(3):
            time.sleep(1.0)
            assert collector.is_alive, collector.log
            collector.kill()
            collector.start()
        time.sleep(2.0)
        assert collector.is_alive, collector.log
        again = [fakes.started(time.time_ns(), n_envs=1)]
        until(lambda: collector.post(body("again", 1, again)) == 200, f"an answer:\n{collector.log}")
        assert group.kills == 0
