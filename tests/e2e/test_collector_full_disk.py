"""A collector on a small disk that fills up: it refuses, is watched all the while, and goes on by itself."""

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.events import LogLine, Severity
from overwatch.feeds.recording import open_recording
from tests import fakes
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector, Sender, reported
from tests.e2e.test_left_checkpoints import Reported, living
from tests.overwatch.collector.running import http
from tests.overwatch.collector.running import reported as reported_by

SIZE_MIB = 24
SMALL_MIB = 48
ENVS = 256
PACE_S = 0.005
"""Between two updates of some 7 KB."""
FLOOD_S = 25
"""Fifteen times as long for the collector."""
MORE_S = 90
"""So much longer on a machine that has much else to do."""

NEIGHBOUR_MIB = 64
NEIGHBOUR_S = 8
"""Some looks at the disk."""
MOST_ACCEPTED = 200
"""Lines of 100 KB."""
ROTATED = ("snapshots-*", "otlp/*.zst")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    with mounted(tmp_path / "disk", SIZE_MIB) as place:
        yield place


@contextmanager
def mounted(place: Path, size_mib: int) -> Iterator[Path]:
    """A file system in memory."""
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "tmpfs", str(place)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("a small file system needs the right to mount one")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_refuses_serves_and_resumes(small_disk: Path, tmp_path: Path) -> None:
    """No acknowledged line is left out between others, nothing is torn, also over a kill on the full disk."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((SIZE_MIB - 6) << 20))
    collector = Collector(tmp_path / "own", f"extensions.file_storage.directory={small_disk}",
                          f"exporters.otlp_file.path={small_disk}/otlp")  # fmt: skip
    sender = Sender("run-0", collector)
    endpoints = collector.start()
    sender.start()
    try:
        until(lambda: sender.refusals[503] > 20, "a refusal that may be retried")
        full = snapshot_of(endpoints, "run-0")
        assert full is not None
        until(lambda: (now := snapshot_of(endpoints, "run-0")) and now.time > full.time, "the tower to go on")
        before = sender.acknowledged

        collector.kill()
        collector.start()
        until(lambda: sender.refusals[503] > 40 or sender.acknowledged > before, "an answer on a full disk")

        ballast.unlink()
        refused = sender.refusals[503]
        acknowledged = sender.acknowledged
        until(lambda: sender.acknowledged > acknowledged, "requests to be accepted again")
        assert set(sender.refusals) == {503}
        assert refused > 20
    finally:
        sender.stop()
    collector.stop()

    numbers = {number for _, number in reported(small_disk / "otlp")}
    oldest = min(numbers)
    # A fast machine sends more than the recording's share of this disk: the oldest pieces are then thinned.
    assert oldest == 1 or list((small_disk / "otlp").glob("index-*-1.jsonl.zst"))
    missing = sorted(set(range(oldest, sender.acknowledged + 1)) - numbers)
    assert not missing, (missing[0], missing[-1], len(missing), sender.acknowledged, collector.log[-4000:])
    assert max(numbers) == sender.acknowledged
    assert "Traceback" not in collector.log


def test_more_than_a_small_disk_holds_is_taken_in_without_a_refusal(tmp_path: Path) -> None:
    """By default, in fast time: what is old makes room, the budget is kept, and every request is accepted."""
    with mounted(tmp_path / "disk", SMALL_MIB) as disk:
        began = time.time_ns()
        with living(disk, began) as endpoints:
            updates, most, rotated = _flood(endpoints, disk, began)
            status = http(str(endpoints.health)).status
            page = http(f"{endpoints.telemetry}/metrics").body.decode()

    assert updates > 100
    assert most < (SMALL_MIB << 20) * 0.95
    assert status == 200
    assert rotated == set(ROTATED)
    assert 'overwatch_storage_part_bytes{part="snapshots"}' in page
    assert 0.7 < _number(page, "overwatch_storage_max_bytes") / (SMALL_MIB << 20) <= 0.8


@pytest.mark.parametrize("is_restarted", [False, True])
def test_another_program_that_fills_the_volume_takes_no_record(tmp_path: Path, *, is_restarted: bool) -> None:
    """What fits into the budget stays: more is refused, also after a kill, until there is room again."""
    with mounted(tmp_path / "disk", NEIGHBOUR_MIB) as disk:
        collector = Collector(tmp_path / "own", f"extensions.file_storage.directory={disk}",
                              f"exporters.otlp_file.path={disk}/otlp",
                              f"exporters.snapshots.path={disk}/snapshots.jsonl",
                              "exporters.otlp_file.rotation.max_minutes=0.03")  # fmt: skip
        endpoints, accepted = collector.start(), 0
        while accepted < MOST_ACCEPTED:
            assert _send(endpoints, accepted) == 200
            accepted += 1
        _fill(disk / "ballast")
        until(
            lambda: "storage" in http(f"{endpoints.health}?verbose=1").body.decode(), "the disk to be noticed"
        )
        until_s = time.monotonic() + NEIGHBOUR_S
        while time.monotonic() < until_s:
            accepted += _send(endpoints, accepted) == 200
            _fill(disk / "ballast")
        if is_restarted:
            collector.kill()
            endpoints = collector.start()
        (disk / "ballast").unlink()
        until(lambda: _send(endpoints, accepted) == 200, "room to be used again")
        collector.stop()
        numbers = {
            int(record.event.message.split()[0])
            for _, decoded in open_recording(disk / "otlp").reported()
            for record in decoded.records
            if isinstance(record.event, LogLine)
        }

    assert numbers == set(range(accepted + 1))
    assert "storage fails: 0 MiB are free on the volume" in collector.log


def _send(endpoints: Endpoints, number: int) -> int:
    """Send one numbered line that does not pack; its status."""
    line = LogLine(at=time.time_ns(), severity=Severity.INFO, message=f"{number} {os.urandom(50_000).hex()}")
    headers = {"Content_Type": "application/x-protobuf"}
    return http(f"{endpoints.otlp_http}/v1/logs", reported_by("run", [line], number + 1), **headers).status


def _fill(ballast: Path) -> None:
    """Take all room that is left."""
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def _number(page: str, series: str) -> float:
    return float(page.partition(f"\n{series} ")[2].partition("\n")[0])


def _flood(endpoints: Endpoints, disk: Path, began: int) -> tuple[int, int, set[str]]:
    """Emit until its files were rotated; how many updates, the most bytes on the disk, what was rotated."""
    run, chance, most = Reported("week", began), random.Random(7), 0  # noqa: S311 numbers that do not pack
    run.emit(endpoints, fakes.started(run.now, n_envs=ENVS))
    until_s, number = time.monotonic() + FLOOD_S, 0
    rotated: set[str] = set()
    while time.monotonic() < until_s or len(rotated) < len(ROTATED):
        assert time.monotonic() < until_s + MORE_S, f"only {rotated or 'nothing'} was rotated"
        number += 1
        values = {name: [chance.random() for _ in range(ENVS)] for name in ("reward", "step_time")}
        run.emit(endpoints, fakes.policy(run.now, number, kl_divergence=0.01, entropy=chance.random()),
                 fakes.envs(run.now, list(range(ENVS)), number, **values))  # fmt: skip
        most = max(most, shutil.disk_usage(disk).used)
        # A file that was rotated may be evicted before the flood ends.
        rotated |= {name for name in ROTATED if any(disk.glob(name))}
        time.sleep(PACE_S)
    return number, most, rotated
