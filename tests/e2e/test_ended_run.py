"""A run that ended while its collector lives and nobody else writes: each view of the past shows its end."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.events import RunFinished
from overwatch.feeds.recording import RecordingError, open_recording
from tests.e2e.collecting import collecting, until
from tests.overwatch.collector.running import http
from tests.overwatch.simulate.runs import overwatch

UPDATES = 13
TRAINER = f"""
import time
import overwatch.sdk

run = overwatch.sdk.start(run_id="last", task="t", algo="ppo", n_envs=2, config={{"n_actions": 2}})
for update in range({UPDATES}):
    time.sleep(0.03)
    run.update(return_=float(update), kl_divergence=0.01, entropy_nats=0.6)
"""
ENDS = {
    "failed": (
        """
try:
    raise ValueError("boom")
except ValueError:
    run.close(60)
    raise
""",
        1,
        "FAILED: ValueError: boom",
    ),
    "completed": ("run.close(60)", 0, None),
}


@pytest.mark.parametrize("outcome", ENDS)
def test_what_came_last_is_in_every_view_of_the_past(tmp_path: Path, outcome: str) -> None:
    """The command of the run's own end card too, as soon as the recording has the end."""
    last_line, status, finding = ENDS[outcome]
    with collecting(tmp_path) as endpoints:
        path = _trained(tmp_path, endpoints, TRAINER + last_line)
        until(lambda: _has_ended(path), "the recording of the end")

        judged = overwatch("audit", path, "--run", "last")
        found = overwatch("query", path, "severity=critical", "--format", "json")
        exported = overwatch("export", path, "--to", "csv", "-o", "-")
        compared = overwatch("compare", path, path)
        shown = overwatch("tui", "--replay", path, "--run", "last", "--once", "--format", "json")
        reported = overwatch("report", path, "--run", "last", "-o", "-")
        past = json.loads(http(f"{_http(endpoints)}/api/v1/snapshot?run=last&at={time.time()}").body)

    assert judged.exit_code == status, judged.output
    assert (finding in judged.output) if finding else ("run-failed" not in judged.output)
    assert ("run-failed" in found.output) == bool(finding)
    rows = list(csv.DictReader(io.StringIO(exported.output)))
    assert max(float(row["update"]) for row in rows if row["metric"] == "overwatch.policy.return") == UPDATES
    for snapshot in (json.loads(shown.output), past):
        assert snapshot["run"]["outcome"] == outcome
        assert snapshot["run"]["update"] == UPDATES
    assert compared.exit_code == 0
    assert "had not ended" not in reported.output + compared.output


def _trained(folder: Path, endpoints: Endpoints, program: str) -> Path:
    """Run a program to its end; the recording that its end card names."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": str(endpoints.otlp_http), "OVERWATCH_QUIET": ""}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    named = re.search(r"look +overwatch report (\S+) --run last", done.stderr)
    assert named is not None, done.stderr
    return Path(named[1])


def _has_ended(path: Path) -> bool:
    try:
        records = (record for _, decoded in open_recording(path).reported() for record in decoded.records)
        return any(isinstance(record.event, RunFinished) for record in records)
    except RecordingError:
        return False


def _http(endpoints: Endpoints) -> str:
    return str(endpoints.view).replace("ws://", "http://")
