"""OpenTelemetry's JavaScript SDK as a client: another language, judged like ours.

npm fetches what `foreign_js/package-lock.json` names; without npm, or where it reaches no registry, the
tests are skipped and state why.
"""

import subprocess
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.snapshot import Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until
from tests.packages import fetched

SOURCE = Path(__file__).parent / "foreign_js"
REPORT_S = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and all that it imports."""
    return fetched(SOURCE, tmp_path_factory.mktemp("js") / "foreign")


def report(folder: Path, endpoints: Endpoints, encoding: str, temporality: str, kl: float) -> None:
    """One update of a trainer in JavaScript; every export must succeed."""
    command = ["node", "report.mjs", str(endpoints.otlp_http), encoding, temporality, str(kl)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=REPORT_S, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def reported(endpoints: Endpoints, run_id: str, kl: float, steps: int = 0) -> Snapshot:
    """The run's snapshot once its KL, its line of log and so many steps are there: they come one by one."""

    def look() -> Snapshot | None:
        snapshot = snapshot_of(endpoints, run_id)
        if snapshot is None or not snapshot.feed or snapshot.policy["kl_divergence"].value != kl:
            return None
        if snapshot.counters["steps"] < steps:
            return None
        return snapshot

    return until(look, f"{run_id} with KL {kl}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_all_signals_of_the_javascript_sdk_arrive(tmp_path: Path, program: Path, encoding: str) -> None:
    """Its gauge is judged, its line is in the feed with its attributes, its span is in the recording."""
    with collecting(tmp_path) as endpoints:
        report(program, endpoints, encoding, "cumulative", 0.02)
        snapshot = reported(endpoints, f"js-{encoding}-cumulative", 0.02)

    assert (snapshot.run.algo, snapshot.policy["kl_divergence"].status) == ("ppo", "warning")
    line = snapshot.feed[-1]
    assert (line.message, line.severity, line.env_id) == ("shard 7 is slow", "warning", 3)
    assert '"name":"rl.train"' in (tmp_path / "otlp" / "traces.jsonl").read_text()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_changes_of_the_javascript_sdk_are_totals(tmp_path: Path, program: Path, encoding: str) -> None:
    """A counter that is exported as changes, three times, is the run's total; twice sent, twice as much."""
    run_id = f"js-{encoding}-delta"
    with collecting(tmp_path) as endpoints:
        for kl, steps in ((0.01, 342), (0.02, 684)):
            report(program, endpoints, encoding, "delta", kl)
            snapshot = reported(endpoints, run_id, kl, steps)
            assert snapshot.counters["steps"] == steps
