"""What holds for every test: nothing is left where others would find it, and no example is on the clock."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import slowness

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    """Tests that are slow get their mark, and those without it start no process."""
    config.pluginmanager.register(slowness)


@pytest.fixture(autouse=True, scope="session")
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders of this session for what trainers leave behind."""
    folder = tmp_path_factory.mktemp("left")
    own = {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "OVERWATCH_RING_DIR": str(folder / "rings")}
    own["OVERWATCH_REPLAY_CACHE"] = str(folder / "replay")
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
