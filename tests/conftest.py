"""No test leaves rings or spools where the next one, or this machine's own trainers, would find them."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders of this session for what trainers leave behind."""
    folder = tmp_path_factory.mktemp("left")
    own = {"OVERWATCH_SPOOL_DIR": str(folder / "spool"), "OVERWATCH_RING_DIR": str(folder / "rings")}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
