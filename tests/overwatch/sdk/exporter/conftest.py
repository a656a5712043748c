"""A machine with scripted GPUs, and the end of spools that tests open."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overwatch.sdk.exporter.spool import Spool, SpoolLimits
from tests.real.fake_nvml.machine import Machine, build


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libnvidia-ml.so.1."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(fake_library: Path, tmp_path: Path) -> Machine:
    """A machine without GPUs, until it is given some."""
    return Machine(tmp_path, fake_library)


@pytest.fixture
def closed_spools(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes every spool that a test opened: each holds six descriptors until then."""
    opened: list[Spool] = []
    begin = Spool.__init__

    def recorded(self: Spool, path: Path, limits: SpoolLimits | None = None, **options: Any) -> None:
        begin(self, path, limits, **options)
        opened.append(self)

    monkeypatch.setattr(Spool, "__init__", recorded)
    yield
    for spool in opened:
        spool.close()
