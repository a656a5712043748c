"""Without PyTorch the demo states it and shows a scripted run under a banner."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from overwatch import codec

HIDE_TORCH = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find(name, package)
from overwatch.cli import main
main()
"""


@pytest.mark.timeout(120)
def test_the_demo_without_torch_is_marked_as_simulated(tmp_path: Path) -> None:
    """The banner is there, the run's id states it too, and the rest works as with a real policy."""
    command = [
        sys.executable,
        "-c",
        HIDE_TORCH,
        "demo",
        "--headless",
        "--seconds",
        "8",
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    result = subprocess.run(
        [*command, "--envs", "4", "--slots", "2"],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    lines = (tmp_path / "out/snapshots.jsonl").read_bytes().splitlines()

    assert result.returncode == 0, result.stdout + result.stderr
    assert "*** SIMULATED ***" in result.stdout
    assert summary["run_id"].startswith("SIMULATED-")
    assert summary["updates"] >= 3
    assert summary["outcome"] == "completed"
    assert codec.decode(lines[-1]).run.n_envs == 4
