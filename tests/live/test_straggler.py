"""Two real ranks over gloo: the one that gets less of its processor is the straggler; else there is none."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.snapshot import Finding, Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until
from tests.live.flying import ROOT, kill_all

RUN = "two-ranks"
LONG_S = 240
pytestmark = pytest.mark.timeout(2 * LONG_S)


@contextmanager
def _training(folder: Path, slow: int) -> Iterator[Endpoints]:
    with collecting(folder) as endpoints, (folder / "log").open("wb") as log:
        words = ["--slow", str(slow), "--run-id", RUN, "--endpoint", endpoints.otlp_http or ""]
        command = [sys.executable, "-m", "tests.live.trainers.gloo", *words, "--seconds", str(LONG_S)]
        run = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield endpoints
        finally:
            kill_all(run)


def _straggler(snapshot: Snapshot | None) -> Finding | None:
    found = () if snapshot is None else snapshot.findings
    return next((finding for finding in found if finding.code == "straggler"), None)


def _waiting(snapshot: Snapshot | None) -> Snapshot | None:
    """One of a run with a straggler that waits at `sync`; on a busy machine other bounds come before."""
    if snapshot is None or snapshot.system.bound is None or _straggler(snapshot) is None:
        return None
    return snapshot if snapshot.system.bound.state == "SYNC-BOUND" else None


@pytest.mark.sampled(1, of="ranks over gloo")
def test_a_rank_that_gets_less_of_its_processor_is_the_straggler(tmp_path: Path) -> None:
    """By what the other waits, its phase `sync`; what the run waits for is that rank."""
    with _training(tmp_path, slow=1) as endpoints:
        snapshot = until(lambda: _waiting(snapshot_of(endpoints, RUN)), "a straggler waited for", LONG_S)
    finding = _straggler(snapshot)

    assert finding is not None
    assert finding.subject.id == "rank 1"
    assert "against" in finding.message
    assert finding.hint == "compare clock and PCIe width of rank 1"
    assert snapshot.run.ranks == 2
    assert snapshot.system.bound is not None
    assert "rank 1" in snapshot.system.bound.why


@pytest.mark.sampled(1, of="ranks over gloo")
def test_ranks_that_get_the_same_have_no_straggler(tmp_path: Path) -> None:
    """After dozens of updates."""
    with _training(tmp_path, slow=-1) as endpoints:
        snapshot = until(
            lambda: (s := snapshot_of(endpoints, RUN)) and (s.run.update or 0) >= 40 and s,
            "40 updates",
            LONG_S,
        )

    assert _straggler(snapshot) is None
