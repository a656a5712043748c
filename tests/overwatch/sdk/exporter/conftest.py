"""A machine with scripted GPUs."""

from pathlib import Path

import pytest

from tests.real.fake_nvml.machine import Machine, build


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake libnvidia-ml.so.1."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(fake_library: Path, tmp_path: Path) -> Machine:
    """A machine without GPUs, until it is given some."""
    return Machine(tmp_path, fake_library)
