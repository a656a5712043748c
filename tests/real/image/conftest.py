"""podman and the project's two images, built once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.image.podman import Podman

TORCH = "torch==2.13.0"
OLDER = "async-timeout"
"""redis needs it before Python 3.11.3: the base may have an older one than the Python that loads wheels."""


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """The program; skips where it can run nothing."""
    made = Podman(tmp_path_factory.mktemp("podman"))
    base = made.base(tmp_path_factory.mktemp("base"))
    ran = made.tried("run", "--rm", "--network", "none", base, "/bin/true")
    if ran.returncode:
        pytest.skip(f"podman cannot run a container here: {ran.stderr.strip()[-300:]}")
    return made


@pytest.fixture(scope="session")
def tower(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of the target `tower`."""
    yield from _image(podman, "tower", ("hatchling", ".[tui,gpu]"), tmp_path_factory.mktemp("tower"))


@pytest.fixture(scope="session")
def rl(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of the target `rl`."""
    wheels = ("hatchling", TORCH, ".[rl,gpu]", "psycopg[binary]", OLDER)
    yield from _image(podman, "rl", wheels, tmp_path_factory.mktemp("rl"))


def _image(podman: Podman, target: str, wheels: tuple[str, ...], folder: Path) -> Iterator[str]:
    base = podman.base(folder)
    name, took = podman.build(target, wheels, folder)
    sizes = [podman.megabytes(image) for image in (name, base)]
    print(f"\n{target}: built in {took:.0f} s, {sizes[0]:.0f} MB of which the base {sizes[1]:.0f} MB")
    yield name
    podman.call("rmi", "--force", name)
