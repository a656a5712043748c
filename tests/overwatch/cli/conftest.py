"""Fixtures of the collector's tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Discovery files of tests never meet those of a real collector."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("OVERWATCH_DATA_DIR", raising=False)
    monkeypatch.delenv("OVERWATCH_READY_FILE", raising=False)
