"""What holds for every test: nothing is left where others would find it, and no example is on the clock."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import sampling, slowness

# Threads of PyTorch wait actively for one another: several times the CPU where tests run side by side.
# It is read when PyTorch is imported, here and in every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MOST_LEFT_OPEN = 128
"""Descriptors that a module of tests may leave open; a process has 1,024 at most by default."""

QUICK = 25
"""Examples that hypothesis draws where a test names no number, anew each session; what fails, it prints."""
EXHAUSTIVE = 400
"""As many as `make long` draws, by `--hypothesis-profile=exhaustive`."""

for _name, _examples in (("quick", QUICK), ("exhaustive", EXHAUSTIVE)):
    settings.register_profile(
        _name, deadline=None, max_examples=_examples, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("quick")


def pytest_configure(config: pytest.Config) -> None:
    """Tests that are slow get their mark, those without it start no process, and some are a sample."""
    config.pluginmanager.register(sampling)
    config.pluginmanager.register(slowness)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays for the session, so the garbage collector passes it over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def _descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


@pytest.fixture(autouse=True, scope="module")
def closed_descriptors() -> Iterator[None]:
    """Fails the last test of a module that leaves many more descriptors open than it found.

    What only garbage holds is collected first, which closes it.
    """
    before = _descriptors()
    yield
    if _descriptors() - before > MOST_LEFT_OPEN:
        gc.collect()
    left = _descriptors() - before
    assert left <= MOST_LEFT_OPEN, f"the module left {left} descriptors open; close what its tests open"


@pytest.fixture(autouse=True, scope="session")
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders of this session for what trainers leave behind, and for where they meet."""
    folder = tmp_path_factory.mktemp("left")
    own = {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "OVERWATCH_RING_DIR": str(folder / "rings")}
    own["OVERWATCH_REPLAY_CACHE"] = str(folder / "replay")
    own["SB3_LOGDIR"] = str(folder / "sb3")
    own["OVERWATCH_QUIET"] = "1"
    # Trainers of one user share an exporter, which some tests kill: not that of another worker's tests.
    own["XDG_RUNTIME_DIR"] = str(folder / "runtime")
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
