"""Every test of the SDK runs as on a machine where nothing is set and no collector is announced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.overwatch.sdk.delivering import FAST, HandHeld, Received

LAUNCHERS = ("OVERWATCH_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "RANK", "SLURM_PROCID")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No launcher, no OTEL_* variables, a runtime folder of its own."""
    import os

    for name in (*LAUNCHERS, *(name for name in os.environ if name.startswith("OTEL_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OVERWATCH_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("OVERWATCH_RING_DIR", str(tmp_path / "rings"))


@pytest.fixture
def received() -> Iterator[Received]:
    """Device values from the CPU."""
    yield (one := Received())
    one.values.drain(0.0)


@pytest.fixture
def held() -> Iterator[Received]:
    """Device values from a device that lands nothing until it is opened."""
    yield (one := Received(HandHeld(), FAST))
    one.values.drain(0.0)
