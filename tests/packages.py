"""Programs of node whose packages npm fetches: what their lock files name, and nothing else."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

FETCH_S: Final = 120


def fetched(source: Path, folder: Path) -> Path:
    """A copy of a program with all that it imports.

    Skips where there is no npm, or where it reaches no registry.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules", "made"))
    command = ["npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm reached no registry within {FETCH_S} s")
    if done.returncode:
        pytest.skip(f"npm could not fetch the packages of {source.name}: {done.stderr[-300:]}")
    return folder
