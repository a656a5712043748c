"""Months of runs in a short time: memory within its bounds, every run whole, every one openable."""

from pathlib import Path

import pytest

from tests.e2e.collecting import until
from tests.e2e.quarter import Quarter

LIMIT_MIB = 320
LONG_LIMIT_MIB = 1024


def live_through(folder: Path, limit_mib: int, runs: int, at_once: int, restarts: int) -> None:
    """Let runs pass by and look at what is left of each."""
    quarter = Quarter(folder, f"receivers.otlp.limits.limit_mib={limit_mib}")
    quarter.collector.start()
    try:
        most = quarter.pass_by(runs, at_once, restarts)
        assert 0 < most.rss <= limit_mib << 20
        assert most.disk < 1 << 30
        for run in quarter.flown[:: max(1, runs // 50)]:
            shown = until(lambda run=run: quarter.shown_ended(run), f"the end of {run.run_id}")  # type: ignore[misc] # bound now
            assert sum(shown.board.counts.values()) == run.n_envs
            assert shown.run.outcome == "completed"
        quarter.collector.stop()
    finally:
        quarter.collector.kill()
    kept = quarter.recorded_lines()
    assert {run.run_id: run.lines for run in quarter.flown} == dict(kept)


def test_runs_come_and_go_for_a_while(tmp_path: Path) -> None:
    """More than memory could hold at once, with a kill and a restart between them."""
    live_through(tmp_path, LIMIT_MIB, runs=60, at_once=6, restarts=2)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_runs_come_and_go_for_a_quarter_of_a_year(tmp_path: Path) -> None:
    """Two thousand of up to 4,096 envs, forty at a time."""
    live_through(tmp_path, LONG_LIMIT_MIB, runs=2000, at_once=40, restarts=8)
